"""Opacus, as its users run it: `PrivacyEngine.make_private` around the plain loop.

Beside its own engine ours (`oso_dp.opacus`), in the same loop: what Online costs an Opacus script.
"""

import warnings
from typing import Any

from competitor import Setting
from plain_sgd import PlainSGD
from workloads import Data


class OpacusHooks(PlainSGD):
    """Per-example gradients by hooks, held for all examples at once."""

    package = "opacus"
    mode = "hooks"

    def __init__(self, setting: Setting, data: Data) -> None:
        from torch.utils.data import DataLoader, TensorDataset

        super().__init__(setting, data)
        # It takes the expected batch size from the loader: here the batch is all of the data.
        loader = DataLoader(TensorDataset(*self.batch), batch_size=setting.batch_size)
        with warnings.catch_warnings():
            # It warns that its noise is not drawn from a cryptographic source: right, and the same
            # for all competitors.
            warnings.filterwarnings("ignore", message="Secure RNG turned off")
            # Ghost clipping returns a criterion, too, as the third.
            self.model, self.optimizer, *criterion, _ = self.make_private(
                module=self.model,
                optimizer=self.optimizer,
                criterion=self.criterion,
                data_loader=loader,
                noise_multiplier=setting.noise_multiplier,
                max_grad_norm=setting.threshold,
                grad_sample_mode=self.mode,
            )
        if criterion:
            (self.criterion,) = criterion

    def make_private(self, **arguments: Any) -> Any:
        from opacus import PrivacyEngine

        return PrivacyEngine().make_private(**arguments, poisson_sampling=False)

    def step(self) -> None:
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient, and its hook is content without.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            super().step()


class OpacusGhost(OpacusHooks):
    """Ghost clipping: norms without per-example gradients, and a second backward pass."""

    mode = "ghost"


class OnlineHooks(OpacusHooks):
    """`OpacusHooks` with the engine of oso in place of Opacus's, which asks for two sums."""

    def make_private(self, **arguments: Any) -> Any:
        from oso_dp.opacus import OnlinePrivacyEngine

        return OnlinePrivacyEngine().make_private(**arguments)


class OnlineGhost(OnlineHooks):
    """The same in ghost mode, where the sums come from kept factors, not from a backward pass."""

    mode = "ghost"
