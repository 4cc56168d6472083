"""A control: Online that learns C alone. It pays for both sums, so that nothing else differs."""

from dataclasses import dataclass

from oso_dp.methods.base import option
from oso_dp.methods.online import Online, OnlineOptions


@dataclass(frozen=True)
class OnlineFrozenLearningRateOptions(OnlineOptions):
    learning_rate_rate: float = option(0.0, ge=0, le=0)  # rho_r


class OnlineFrozenLearningRate(Online):
    name = "online_frozen_learning_rate"
    title = "Online, rho frozen"
    Options = OnlineFrozenLearningRateOptions
