"""PSAC: per-sample adaptive clipping, AUTO-S with another weight (Xia et al. 2023)."""

from dataclasses import dataclass

from oso_dp.methods.auto_s import AutoS, AutoSOptions
from oso_dp.methods.base import option
from oso_dp.privacy.queries import AdaptiveGradient


@dataclass(frozen=True)
class PSACOptions(AutoSOptions):
    stabiliser: float = option(0.1, ge=1e-6, le=1e6)  # r


class PSAC(AutoS):
    name = "psac"
    title = "PSAC"
    Options = PSACOptions
    query = AdaptiveGradient
