"""A run's identity (`run_id`): a hash of every configured value that its result depends on.

Most of these values are columns of the results; the others are in the column `settings`, as JSON.
So the identity can be computed from a stored row, too.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.methods import AXES

# Default distribution of the number of runs under random stopping; it needs the least noise.
DEFAULT_STOPPING_DISTRIBUTION: Final = "logarithmic"

# Columns that an identity is computed from: those of the cohort, and those of the run.
COHORT = (
    *("dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"),
    *("examples", "batch_size", "epochs"),
)
POINT = AXES
# Fields that were renamed after runs had been stored: hashes use the old names.
STORED_NAMES = {
    "search_accounting": "selection",
    "stopping_distribution": "stopping_shape",
    "trial_fractions": "trial_shares",
    "oov_words": "unknown_words",
    "final_activation": "last_layer_nonlinearity",
}
# Options added after runs had been stored enter the hash only where they differ from these
# defaults, so that older runs keep their identities.
IDENTITY_DEFAULTS = {
    "precision": "float32",
    "loss": "mean",
    "oov_words": "zeros",
    "randomness": "seeded",
    "stopping_distribution": None,
}


def make_cohort_name(row: Mapping[str, Any], stage: str | None) -> str:
    """A readable name, also of files: data set, method, k, budget, search accounting, stage.

    Composition and a missing stage are left out. Cohorts of one name may differ in other columns:
    `make_cohort_id` tells these apart.
    """
    epsilon = row["epsilon"]
    budget = "nonprivate" if epsilon is None else f"eps{epsilon:.15g}"
    name = f"{row['dataset']}.{row['method']}.k{row['k']}.{budget}"
    name = name if row["search_accounting"] == COMPOSITION else f"{name}.{row['search_accounting']}"
    return name if stage is None else f"{name}.{stage.replace(' ', '_')}"


def stage_of(settings: str | None) -> str | None:
    """The search stage of a row, from its column `settings`; None for a search without stages."""
    stage: str | None = None if settings is None else parse_json(settings).get("part")
    return stage


def make_run_id(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The identity of a row, from its columns `COHORT`, precision, `POINT` and seed.

    settings: the parsed column `settings` (`format_run_options`). Nulls of the row are None.
    """
    values = _identity_fields(row, settings) | {name: row[name] for name in (*POINT, "seed")}
    return _digest(values)[:20]


def make_cohort_id(row: Mapping[str, Any]) -> str:
    """The identity of a row's cohort, also among cohorts of one name; `settings` as stored."""
    text = row["settings"]
    return _digest(_identity_fields(row, {} if text is None else parse_json(text)))[:12]


def format_run_options(settings: Mapping[str, Any]) -> str:
    """The column `settings`: configured values that have no other column, as JSON.

    Keys: settings (the method's options), model, grid_runs (N), evaluate_every, final_activation,
    loss, randomness, and stopping_distribution (null without random stopping). Texts: words,
    oov_words, and vocabulary where it is not the default. If set: schedule, averaging. Linear
    scaling: part (the stage), trial_fractions. User-defined data sets: data_version, public,
    budget_runs (the number of runs that share the epsilon; null for public data).

    OsoError for a value that JSON does not preserve.
    """
    try:
        text = json.dumps(settings, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OsoError(f"settings: cannot be stored as JSON ({error})") from None
    if parse_json(text) != settings:
        raise OsoError(f"settings: JSON would change their values ({text})")
    return text


def _identity_fields(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: row[name] for name in (*COHORT, "precision")}
    # The model determines the number of words.
    fields |= {name: value for name, value in settings.items() if name != "words"}
    return {
        STORED_NAMES.get(name, name): value
        for name, value in fields.items()
        if name not in IDENTITY_DEFAULTS or value != IDENTITY_DEFAULTS[name]
    }


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
