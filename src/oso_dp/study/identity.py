"""A run's identity (`run_id`): a hash of every configured value that its result depends on.

They are columns of the results, so the identity can be computed from a stored row, too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.errors import OsoError
from oso_dp.methods import AXES

# Columns that an identity is computed from: those of the cohort, and those of the run.
COHORT = (
    *("dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"),
    *("examples", "batch_size", "epochs"),
)
POINT = AXES
# Null for runs that protect an example; set for those that protect a user.
USER_OPTIONS = ("unit", "local")
# Columns of the options, which rows of the oldest format may lack.
OPTIONS = (
    *("model", "method_options", "grid_runs", "evaluate_every", "final_activation", "loss"),
    *("oov_words", "vocabulary", "randomness", "stopping_distribution", "schedule", "averaging"),
    *("stage", "trial_fractions", "data_version", "budget_runs"),
    *USER_OPTIONS,
)
# Those of any run; others are null where they do not apply.
BASIC_OPTIONS = ("model", "method_options", "grid_runs", "evaluate_every", "final_activation")
_INTEGERS = ("grid_runs", "evaluate_every", "budget_runs")  # floats in a table with nulls
# Fields that were renamed after runs had been stored: hashes use the old names.
STORED_NAMES = {
    "method_options": "settings",
    "search_accounting": "selection",
    "stage": "part",
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


def make_cohort_name(row: Mapping[str, Any]) -> str:
    """A readable name, also of files: data set, method, k, budget, search accounting, stage.

    Composition and a missing stage are left out. Cohorts of one name may differ in other columns:
    `make_cohort_id` tells these apart.
    """
    epsilon, stage = row["epsilon"], row["stage"]
    budget = "nonprivate" if epsilon is None else f"eps{epsilon:.15g}"
    name = f"{row['dataset']}.{row['method']}.k{row['k']}.{budget}"
    name = name if row["search_accounting"] == COMPOSITION else f"{name}.{row['search_accounting']}"
    return name if stage is None else f"{name}.{stage.replace(' ', '_')}"


def make_run_id(row: Mapping[str, Any]) -> str:
    """The identity of a row: of its columns `COHORT`, precision, `OPTIONS`, `POINT` and seed.

    Nulls of the row are None.
    """
    values = _identity_fields(row) | {name: row[name] for name in (*POINT, "seed")}
    return _digest(values)[:20]


def make_cohort_id(row: Mapping[str, Any]) -> str:
    """The identity of a row's cohort, also among cohorts of one name."""
    return _digest(_identity_fields(row))[:12]


def format_method_options(options: Mapping[str, Any]) -> str:
    """The column `method_options` or `local`; OsoError for what its text does not preserve."""
    text = ", ".join(f"{name}={options[name]}" for name in sorted(options))
    if repr(parse_method_options(text)) != repr({name: options[name] for name in sorted(options)}):
        raise OsoError(f"method options: {text[:80]!r}; must be numbers, true or false, or words")
    return text


@cache
def parse_method_options(text: str) -> dict[str, Any]:
    """The options from the column `method_options` or `local`, by name."""
    pairs = (pair.partition("=") for pair in text.split(", ") if text)
    return {name: _parse_option(value) for name, _, value in pairs}


def _parse_option(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def format_trial_fractions(fractions: Sequence[float]) -> str:
    """The column `trial_fractions`."""
    return ", ".join(map(repr, fractions))


def parse_trial_fractions(text: str) -> tuple[float, ...]:
    """The fractions of epsilon from the column `trial_fractions`."""
    return tuple(map(float, text.split(", ")))


def _identity_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: row[name] for name in (*COHORT, "precision")}
    fields |= {name: row[name] for name in OPTIONS if row[name] is not None}
    fields |= {name: int(fields[name]) for name in _INTEGERS if name in fields}
    for name in ("method_options", "local"):
        if name in fields:
            fields[name] = parse_method_options(fields[name])
    if "trial_fractions" in fields:
        fields["trial_fractions"] = parse_trial_fractions(fields["trial_fractions"])
    if "data_version" in fields:  # null is a fact about user-defined data sets, too
        fields |= {"budget_runs": fields.get("budget_runs"), "public": row["budget_runs"] is None}
    return {
        STORED_NAMES.get(name, name): value
        for name, value in fields.items()
        if name not in IDENTITY_DEFAULTS or value != IDENTITY_DEFAULTS[name]
    }


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
