"""A control: Online that learns rho alone. It pays for both sums, so that nothing else differs."""

from dataclasses import dataclass

from oso_dp.methods.base import setting
from oso_dp.methods.online import Online, OnlineSettings


@dataclass(frozen=True)
class OnlineFrozenThresholdSettings(OnlineSettings):
    threshold_rate: float = setting(0.0, ge=0, le=0)  # rho_c


class OnlineFrozenThreshold(Online):
    name = "online_frozen_threshold"
    title = "Online, C frozen"
    Settings = OnlineFrozenThresholdSettings
