"""A control: Online that learns rho alone. It pays for both sums, so that nothing else differs."""

from dataclasses import dataclass

from oso_dp.methods.base import option
from oso_dp.methods.online import Online, OnlineOptions


@dataclass(frozen=True)
class OnlineFrozenThresholdOptions(OnlineOptions):
    threshold_rate: float = option(0.0, ge=0, le=0)  # rho_c


class OnlineFrozenThreshold(Online):
    name = "online_frozen_threshold"
    title = "Online, C frozen"
    Options = OnlineFrozenThresholdOptions
