"""A control: Online that learns C alone. It pays for both sums, so that nothing else differs."""

from dataclasses import dataclass

from oso_dp.methods.base import setting
from oso_dp.methods.online import Online, OnlineSettings


@dataclass(frozen=True)
class OnlineFrozenLearningRateSettings(OnlineSettings):
    learning_rate_rate: float = setting(0.0, ge=0, le=0)  # rho_r


class OnlineFrozenLearningRate(Online):
    name = "online_frozen_learning_rate"
    title = "Online, rho frozen"
    Settings = OnlineFrozenLearningRateSettings
