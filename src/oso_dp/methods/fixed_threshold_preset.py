"""A control: FixedThreshold with C set beforehand, so that its grid costs what Online's does."""

from dataclasses import dataclass

from oso_dp.methods.base import MethodOptions, option
from oso_dp.methods.fixed_threshold import FixedThreshold


@dataclass(frozen=True)
class FixedThresholdPresetOptions(MethodOptions):
    threshold: float = option(0.1, gt=0)  # Online's C_0


class FixedThresholdPreset(FixedThreshold):
    name = "fixed_threshold_preset"
    title = "FixedThreshold, C set beforehand"
    search = ("learning_rate",)
    Options = FixedThresholdPresetOptions

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "threshold": self.options.threshold}
