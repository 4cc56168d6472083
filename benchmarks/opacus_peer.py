"""Opacus, as its users run it: `PrivacyEngine.make_private` around the plain loop."""

import warnings

import torch
from competitor import Setting
from plain_sgd import PlainSGD
from torch import Tensor, nn
from workloads import Data


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
    batch: tuple[Tensor, Tensor],
    setting: Setting,
    mode: str,
) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module]:
    """The three as Opacus gives them back; `mode`: hooks or ghost."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    # It takes the expected batch size from the loader: here the batch is all of the data.
    loader = DataLoader(TensorDataset(*batch), batch_size=setting.batch_size)
    with warnings.catch_warnings():
        # It warns that its noise is not drawn from a cryptographic source: right, and the same
        # for all competitors.
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        # Ghost clipping returns a criterion, too, as the third.
        model, optimizer, *other, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=loader,
            noise_multiplier=setting.noise_multiplier,
            max_grad_norm=setting.threshold,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
    return model, optimizer, other[0] if other else criterion


class OpacusHooks(PlainSGD):
    """Per-example gradients by hooks, held for all examples at once."""

    package = "opacus"
    mode = "hooks"

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        self.model, self.optimizer, self.criterion = make_private(
            self.model, self.optimizer, self.criterion, self.batch, setting, self.mode
        )

    def step(self) -> None:
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient, and its hook is content without.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            super().step()


class OpacusGhost(OpacusHooks):
    """Ghost clipping: norms without per-example gradients, and a second backward pass."""

    mode = "ghost"
