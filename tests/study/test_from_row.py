"""A stored row tells the very run that it came from, whatever its configuration says."""

from dataclasses import replace

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort, make_run
from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.identity import OPTIONS

# A selection, a model, a schedule, an average, a part of a search: whatever rows may have.
CONFIGS = [
    *("paper", "demo", "paper/best_points", "paper/ag_news_subset"),
    *("ablations/controls", "ablations/one_epoch", "ablations/ag_news_25_words"),
    *("extensions/random_stopping", "extensions/linear_scaling", "extensions/untuned"),
    *("extensions/defaults_linear_decay", "extensions/defaults_averaged"),
]


def planned(cohort) -> PlannedCohort:
    noise = 1.5 if cohort.is_private else 0.0
    return PlannedCohort(**vars(cohort), noise_multiplier=noise)


def row_of(cohort, run) -> dict:
    point = ["run_id", "seed", "learning_rate", "threshold", "quantile"]
    noise = {"noise_multiplier": cohort.noise_multiplier if cohort.is_private else None}
    return cohort.columns | {name: getattr(run, name) for name in point} | noise


@pytest.mark.parametrize("name", CONFIGS)
def test_every_planned_run_comes_back_from_its_row(repo, name: str) -> None:
    every = [planned(cohort) for cohort in make_cohorts(load_config(repo / f"config/{name}.yaml"))]
    assert every
    for cohort in every:
        for run in cohort.runs[:: max(1, len(cohort.runs) // 3)]:
            again, repeated = make_run(row_of(cohort, run))
            assert repeated == run
            assert again == replace(cohort, runs=(run,))


@pytest.mark.parametrize(
    ("column", "value"),
    [("seed", 99), ("delta", 1e-6), ("momentum", 0.5), ("precision", "tf32"), ("run_id", "0" * 20)],
)
def test_values_of_another_run_are_refused(repo, column: str, value) -> None:
    cohort = planned(make_cohorts(load_config(repo / "config/paper/best_points.yaml"))[0])
    row = row_of(cohort, cohort.runs[0]) | {column: value}
    with pytest.raises(OsoError, match="its values give another identity"):
        make_run(row)


def test_a_row_without_options_is_refused(repo) -> None:
    cohort = planned(make_cohorts(load_config(repo / "config/paper/best_points.yaml"))[0])
    row = row_of(cohort, cohort.runs[0])
    with pytest.raises(OsoError, match="model: must not be null"):
        make_run(row | dict.fromkeys(OPTIONS))
