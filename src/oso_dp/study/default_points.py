"""Default hyperparameters: of the study's untuned runs of each method, and of `train_private`.

A default that was chosen on a data set is not untuned there: `chosen_on` lists these data
sets, and tables mark them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class DefaultConfig:
    """A method, its schedule or averaging, and one initial point for all data sets."""

    method: str
    variant: Mapping[str, Any]  # schedule, averaging and momentum
    point: Mapping[str, float]  # initial hyperparameters, by axis
    why_chosen: str  # the source, or the trials
    chosen_on: tuple[str, ...] = ()  # data sets that it was chosen on
    constants: Mapping[str, float] = field(default_factory=dict)  # options of the method, by name


_TRIALS = "single trials on MNIST and on the AG News subset"
_SEEN = ("mnist", "ag_news_partial")
# Data sets of the papers that chose a default; ag_news_partial is a subset of ag_news.
_PAPERS = ("mnist", "fashion_mnist", "ag_news", "ag_news_partial")
# The method and its linear decay were designed on these data sets.
_ALPHA = f"alpha is Adam's usual one, the method was made by {_TRIALS}"
_SCALE = "scale and first distance: single trials on the demo's digits, the AG News subset, MNIST"
_FALLING = {"schedule": "linear"}
_AVERAGED = {"averaging": 0.9999}  # De et al. (2022)

DEFAULTS: Final = (
    DefaultConfig("auto_s", _FALLING, {"learning_rate": 0.316228}, _TRIALS, _SEEN),
    DefaultConfig("auto_s", _AVERAGED, {"learning_rate": 0.316228}, f"rho: {_TRIALS}", _SEEN),
    DefaultConfig("auto_s", {}, {"learning_rate": 0.316228}, _TRIALS, _SEEN),
    DefaultConfig(
        "online", {}, {"learning_rate": 1.0}, f"C_0: its paper, rho_0: {_TRIALS}", _PAPERS
    ),
    DefaultConfig(
        "adam_wosm", {}, {"threshold": 1.0}, "the middle of the paper's range of C", _PAPERS
    ),
    DefaultConfig("auto_wosm", _FALLING, {"learning_rate": 1e-3}, _ALPHA, _SEEN),
    DefaultConfig("auto_dog", _AVERAGED, {"learning_rate": 0.1}, _SCALE, _SEEN),
)

# The default of `train_private`: of 30 candidates the one that lost least on four tasks, judged on
# four others (benchmarks/default_choice; docs/user/choosing_a_method.md). Without momentum a short
# training takes steps of full length from the first on.
RECOMMENDED: Final = DefaultConfig(
    "online",
    {"schedule": "linear", "momentum": 0.0},
    {"learning_rate": 3.0},
    "trials on MNIST, AG News (part) and two tables of scikit-learn",
    _SEEN,
    {"initial_threshold": 1.0},
)
