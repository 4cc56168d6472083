"""Evaluation metrics: their direction, unit and label."""

from dataclasses import dataclass

from oso_dp.errors import OsoError


@dataclass(frozen=True)
class Metric:
    """One metric. Stored as a fraction, or error per pixel; displayed times `scale`."""

    higher_is_better: bool
    scale: float
    label: str  # of an axis
    unit: str  # in tables
    logarithmic: bool = False  # axis scale, if values span more than a factor of 10


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
