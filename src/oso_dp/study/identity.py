"""A run's identity: a hash of all that the configuration decides of it.

Columns of the results hold most of that; what none holds stands in the column `settings`, as JSON.
So an identity can be computed from a stored row, too.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.methods import AXES

# The distribution of the number of runs of a search that stops at random, unless the configuration
# says otherwise. The logarithmic one asks for the least noise.
DEFAULT_STOPPING_DISTRIBUTION: Final = "logarithmic"

# Of a run, and (the first) of its whole cohort: columns of the results that its identity rests on.
COHORT = (
    *("dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"),
    *("examples", "batch_size", "epochs"),
)
POINT = AXES
# Fields whose names changed after runs had been stored: a hash rests on the old ones.
STORED_NAMES = {
    "search_accounting": "selection",
    "stopping_distribution": "stopping_shape",
    "trial_fractions": "trial_shares",
    "oov_words": "unknown_words",
    "final_activation": "last_layer_nonlinearity",
}
# What became a choice after runs had been stored counts only where it is not this, so that those
# runs keep their identities.
IDENTITY_DEFAULTS = {
    "precision": "float32",
    "loss": "mean",
    "oov_words": "zeros",
    "randomness": "seeded",
    "stopping_distribution": None,
}


def make_cohort_name(row: Mapping[str, Any], part: str | None) -> str:
    """For people and files: data set, method, k, budget, and how tuning is accounted for if not by
    composition, and which part of a search in parts.

    Of the columns of these names; what else may differ is in `cohort_id`.
    """
    epsilon = row["epsilon"]
    budget = "nonprivate" if epsilon is None else f"eps{epsilon:.15g}"
    name = f"{row['dataset']}.{row['method']}.k{row['k']}.{budget}"
    name = name if row["search_accounting"] == COMPOSITION else f"{name}.{row['search_accounting']}"
    return name if part is None else f"{name}.{part.replace(' ', '_')}"


def stage_of(settings: str | None) -> str | None:
    """Which part of its search a row is, as its column `settings` says; None: a search of one."""
    part: str | None = None if settings is None else parse_json(settings).get("part")
    return part


def make_run_id(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Of the columns `COHORT`, precision, `POINT` and seed of a row, None where one is null.

    settings: what the column of that name says, see `settings_text`.
    """
    whole = _identity_fields(row, settings) | {name: row[name] for name in (*POINT, "seed")}
    return _digest(whole)[:20]


def make_cohort_id(row: Mapping[str, Any]) -> str:
    """What tells a row's cohort from all others, also of the same name; `settings` as stored."""
    text = row["settings"]
    return _digest(_identity_fields(row, {} if text is None else parse_json(text)))[:12]


def format_run_options(settings: Mapping[str, Any]) -> str:
    """The column `settings`: what the configuration decides and no other column holds.

    settings (the method's), model, grid_runs (N), evaluate_every, final_activation, loss
    (over an image's pixels), words, oov_words and vocabulary (of texts; the
    last where it is not the data set's default), randomness, stopping_distribution (null
    but under random stopping); schedule and averaging where there are any; part and trial_fractions
    of a search by the linear scaling rule. Of a user's own data set also data_version, public, and
    budget_runs, which is how many runs share its epsilon (null where it is public). OsoError for a
    value that the column would not give back.
    """
    try:
        text = json.dumps(settings, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OsoError(f"settings: the results cannot hold them ({error})") from None
    if parse_json(text) != settings:
        raise OsoError(f"settings: the results would hold others ({text})")
    return text


def _identity_fields(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    whole = {name: row[name] for name in (*COHORT, "precision")}
    # The model says how many words it reads.
    whole |= {name: value for name, value in settings.items() if name != "words"}
    return {
        STORED_NAMES.get(name, name): value
        for name, value in whole.items()
        if name not in IDENTITY_DEFAULTS or value != IDENTITY_DEFAULTS[name]
    }


def _digest(whole: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
