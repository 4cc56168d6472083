"""What an evaluation reports: which direction is better, and how it is printed."""

from dataclasses import dataclass

from oso_dp.errors import OsoError


@dataclass(frozen=True)
class Metric:
    """One metric. Stored are fractions, or errors per pixel; printed is `scale` times that."""

    higher_is_better: bool
    scale: float
    label: str  # of an axis
    unit: str  # in tables
    logarithmic: bool = False  # axes: where values span more than a factor ten


METRICS = {
    "accuracy": Metric(True, 100.0, "test accuracy, %", "%"),
    "mse": Metric(False, 100.0, "test mean squared error × 100", "mse × 100", True),
}


def metric_direction(metric: str) -> int:
    """1 where higher is better, -1 where lower is; OsoError as by `is_higher_better`."""
    return 1 if is_higher_better(metric) else -1


def is_logarithmic(metric: str) -> bool:
    return metric in METRICS and METRICS[metric].logarithmic


def is_higher_better(metric: str) -> bool:
    """Raises OsoError for a metric whose direction is unknown."""
    if metric not in METRICS:
        raise OsoError(f"evaluations: metric {metric!r} is unknown; allowed: {', '.join(METRICS)}")
    return METRICS[metric].higher_is_better
