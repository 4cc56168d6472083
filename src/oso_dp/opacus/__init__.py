"""Drop-in replacements for Opacus's `PrivacyEngine` with an adaptive clipping threshold.

docs/user/opacus.md shows a script and lists the supported `grad_sample_mode`s and features.

Example:
    >>> from oso_dp.opacus import OnlinePrivacyEngine
    >>> engine = OnlinePrivacyEngine(accountant="prv")
    >>> model, optimizer, loader = engine.make_private(
    ...     module=model,
    ...     optimizer=optimizer,
    ...     data_loader=loader,
    ...     noise_multiplier=1.0,
    ...     max_grad_norm=0.1,
    ... )
    >>> # train as usual, then
    >>> engine.get_epsilon(delta=1e-5)
"""

from oso_dp.opacus.privacy_engine import (
    AutoSPrivacyEngine,
    FixedQuantilePrivacyEngine,
    OnlinePrivacyEngine,
)

__all__ = ["AutoSPrivacyEngine", "FixedQuantilePrivacyEngine", "OnlinePrivacyEngine"]
