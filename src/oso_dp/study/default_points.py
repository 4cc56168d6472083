"""One guess for each method that is to need no search, and where the guess came from.

A default that was chosen by looking at a data set is not free there: `seen` names those data sets,
and tables that compare mark them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class DefaultConfig:
    """A method with what is laid over its steps, and the point that it starts from everywhere."""

    method: str
    variant: Mapping[
        str, Any
    ]  # schedule, averaging: see oso_dp.training.schedule_and_averaging; as rows say it
    point: Mapping[str, float]  # what is guessed, by axis
    why_chosen: str  # by whom, looking at what
    how_often_seen: tuple[str, ...] = ()  # data sets that it was chosen by


_TRIALS = "single trials on MNIST and on the part of AG News"
_SEEN = ("mnist", "ag_news_partial")
# What a paper chose, it chose by its own data sets; of one of them we have a part.
_PAPERS = ("mnist", "fashion_mnist", "ag_news", "ag_news_partial")
# The method was made, and given a falling rate, after looking there.
_OWN = f"alpha is Adam's usual one, the method was made by {_TRIALS}"
_SCALE = "scale and first distance: single trials on the demo's digits, AG News (part), MNIST"
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
    DefaultConfig("auto_wosm", _FALLING, {"learning_rate": 1e-3}, _OWN, _SEEN),
    DefaultConfig("auto_dog", _AVERAGED, {"learning_rate": 0.1}, _SCALE, _SEEN),
)

# What `train_private` does unless it is told otherwise: docs/user/choosing_a_method.md says why.
RECOMMENDED: Final = next(one for one in DEFAULTS if one.method == "online")
