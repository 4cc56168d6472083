"""PSAC: per-sample adaptive clipping, AUTO-S with another weight (Xia et al. 2023)."""

from pydantic import Field

from oso.methods.auto_s import AutoS, AutoSSettings
from oso.privacy.queries import AdaptiveGradient


class PSACSettings(AutoSSettings):
    stabiliser: float = Field(0.1, ge=1e-6, le=1e6)  # r


class PSAC(AutoS):
    name = "psac"
    title = "PSAC"
    Settings = PSACSettings
    query = AdaptiveGradient
