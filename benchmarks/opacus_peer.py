"""Opacus, as its users run it: `PrivacyEngine.make_private` around the plain loop.

Beside its own engine ours (`oso_dp.opacus`), in the same loop: what Online costs an Opacus script.
"""

import warnings
from typing import Any

import torch
from competitor import Setting
from plain_sgd import PlainSGD
from torch import Tensor, nn
from workloads import Data


def opacus_engine(**arguments: Any) -> Any:
    """What Opacus's own engine makes of a model; its batches stay as they are."""
    from opacus import PrivacyEngine

    return PrivacyEngine().make_private(**arguments, poisson_sampling=False)


def online_engine(**arguments: Any) -> Any:
    """What ours makes of it."""
    from oso_dp.opacus import OnlinePrivacyEngine

    return OnlinePrivacyEngine().make_private(**arguments)


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
    batch: tuple[Tensor, Tensor],
    setting: Setting,
    mode: str,
    engine: Any = opacus_engine,
) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module]:
    """The three as an engine gives them back; `mode`: hooks or ghost."""
    from torch.utils.data import DataLoader, TensorDataset

    # It takes the expected batch size from the loader: here the batch is all of the data.
    loader = DataLoader(TensorDataset(*batch), batch_size=setting.batch_size)
    with warnings.catch_warnings():
        # It warns that its noise is not drawn from a cryptographic source: right, and the same
        # for all competitors.
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        # Ghost clipping returns a criterion, too, as the third.
        model, optimizer, *other, _ = engine(
            module=model,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=loader,
            noise_multiplier=setting.noise_multiplier,
            max_grad_norm=setting.threshold,
            grad_sample_mode=mode,
        )
    return model, optimizer, other[0] if other else criterion


class OpacusHooks(PlainSGD):
    """Per-example gradients by hooks, held for all examples at once."""

    package = "opacus"
    mode = "hooks"
    engine = staticmethod(opacus_engine)

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        self.model, self.optimizer, self.criterion = make_private(
            self.model,
            self.optimizer,
            self.criterion,
            self.batch,
            setting,
            self.mode,
            self.engine,
        )

    def step(self) -> None:
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient, and its hook is content without.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            # Every step has the same batch, for all competitors; no epsilon is asked for.
            warnings.filterwarnings(
                "ignore", message="optimizer.step: the loader that make_private returned"
            )
            super().step()


class OpacusGhost(OpacusHooks):
    """Ghost clipping: norms without per-example gradients, and a second backward pass."""

    mode = "ghost"


class OnlineHooks(OpacusHooks):
    """`OpacusHooks` with the engine of oso in place of Opacus's, which asks for two sums."""

    engine = staticmethod(online_engine)


class OnlineGhost(OnlineHooks):
    """The same in ghost mode, where the sums come from kept factors, not from a backward pass."""

    mode = "ghost"
