"""The evaluation metrics (accuracy, mean squared error): direction, unit and display scale."""

from dataclasses import dataclass

from oso_dp.errors import OsoError


@dataclass(frozen=True)
class Metric:
    """A metric. Values are stored as fractions or errors per pixel, and displayed times `scale`."""

    higher_is_better: bool
    scale: float
    label: str  # in figures
    unit: str  # in tables
    logarithmic: bool = False  # in figures: values span more than a factor of ten


METRICS = {
    "accuracy": Metric(True, 100.0, "test accuracy, %", "%"),
    "mse": Metric(False, 100.0, "test mean squared error × 100", "mse × 100", True),
}


def metric_direction(metric: str) -> int:
    """1 if higher is better, -1 if lower is; OsoError for an unknown metric."""
    return 1 if is_higher_better(metric) else -1


def is_logarithmic(metric: str) -> bool:
    return metric in METRICS and METRICS[metric].logarithmic


def is_higher_better(metric: str) -> bool:
    """Whether higher is better; OsoError for an unknown metric."""
    if metric not in METRICS:
        raise OsoError(f"evaluations: metric {metric!r}; must be one of {', '.join(METRICS)}")
    return METRICS[metric].higher_is_better
