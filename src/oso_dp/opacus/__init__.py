"""The drop-in for Opacus's PrivacyEngine: an adaptive clipping threshold by one changed line.

docs/user/opacus.md shows a script, and says which of Opacus's modes and features go together.
"""

from oso_dp.opacus.privacy_engine import (
    AutoSPrivacyEngine,
    FixedQuantilePrivacyEngine,
    OnlinePrivacyEngine,
)

__all__ = ["AutoSPrivacyEngine", "FixedQuantilePrivacyEngine", "OnlinePrivacyEngine"]
