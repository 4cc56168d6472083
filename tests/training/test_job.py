"""A job: rows for each of its runs, also after a kill."""

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.results.schema import EVALUATIONS, RUNS
from oso_dp.study.cohort import cohorts
from oso_dp.study.config import parse_config
from oso_dp.training.job import run_job


def study(**other):
    base = {
        "name": "test",
        "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
        "methods": {"online": {}},
        "granularities": [2],
        "seeds": [0, 1],
        "batch_size": 600,
        "epochs": 1,
        "evaluate_every": 5,
        "runs_at_once": 2,
    }
    config = parse_config({**base, **other}, "test")
    return config, cohorts(config)[0]


@pytest.fixture(scope="module")
def glyphs(arrays) -> Arrays:
    """As many examples as the catalogue says."""
    tiles = (30, 1, 1, 1)
    return Arrays(
        np.tile(arrays.train_inputs, tiles),
        np.tile(arrays.train_targets, 30),
        arrays.test_inputs,
        arrays.test_targets,
    )


class KilledError(Exception):
    pass


def without_time(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "wall_seconds"} for row in rows]


def test_rows_have_the_columns_of_the_format(glyphs, tmp_path) -> None:
    config, cohort = study()
    rows = run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path)
    assert [row["run_id"] for row in rows.runs] == [run.run_id for run in cohort.runs]
    assert all(row.keys() == set(RUNS.names) for row in rows.runs)
    assert all(row.keys() == set(EVALUATIONS.names) for row in rows.evaluations)
    assert all(row["wall_seconds"] > 0 for row in rows.runs)
    assert rows.runs[0]["query_noise_multiplier"] == pytest.approx(7.124 * 1.5)


def test_a_method_without_privacy_has_no_noise_in_its_rows(glyphs, tmp_path) -> None:
    config, cohort = study(methods={"no_dp": {}})
    row = run_job(config, cohort, cohort.runs[:1], 0.0, glyphs, tmp_path).runs[0]
    assert [row[name] for name in ("epsilon", "delta", "noise_multiplier", "momentum")] == [
        None,
        None,
        None,
        None,
    ]


def test_runs_at_once_changes_time_only(glyphs, tmp_path) -> None:
    outcomes = []
    for together in (1, 4):
        config, cohort = study(runs_at_once=together)
        rows = run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path / str(together))
        outcomes.append(rows)
    one, four = outcomes
    assert without_time(one.runs) == without_time(four.runs)
    assert [row["loss"] for row in one.evaluations] == pytest.approx(
        [row["loss"] for row in four.evaluations], rel=1e-4
    )


@pytest.mark.parametrize("killed_at", [(0, 7), (2, 1), (2, 6)])
def test_a_killed_job_resumes_to_the_same_rows(killed_at, glyphs, tmp_path) -> None:
    config, cohort = study()
    whole = run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path / "whole")

    def kill(done: int, step: int) -> None:
        if (done, step) == killed_at:
            raise KilledError

    folder = tmp_path / "killed"
    with pytest.raises(KilledError):
        run_job(config, cohort, cohort.runs, 1.5, glyphs, folder, kill)
    seen: list[tuple[int, int]] = []
    resumed = run_job(config, cohort, cohort.runs, 1.5, glyphs, folder, lambda *at: seen.append(at))
    assert min(seen) > (killed_at[0], 0)
    assert seen[0] == (killed_at[0], killed_at[1] // 5 * 5 + 1)
    assert without_time(resumed.runs) == without_time(whole.runs)
    assert resumed.evaluations == whole.evaluations


def test_other_noise_does_not_resume(glyphs, tmp_path) -> None:
    config, cohort = study()
    run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path)
    steps: list[tuple[int, int]] = []
    rows = run_job(config, cohort, cohort.runs, 2.5, glyphs, tmp_path, lambda *a: steps.append(a))
    assert steps[0] == (0, 1)
    assert rows.runs[0]["noise_multiplier"] == 2.5


def test_data_of_another_size_than_the_noise_was_priced_for_are_refused(arrays, tmp_path) -> None:
    config, cohort = study()
    with pytest.raises(OsoError, match="planned for 6000 training examples"):
        run_job(config, cohort, cohort.runs, 1.5, arrays, tmp_path)


def test_other_data_do_not_resume(glyphs, tmp_path) -> None:
    """The same noise on two data sets would give their difference away."""
    config, cohort = study()
    run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path)
    other = Arrays(
        1 - glyphs.train_inputs, glyphs.train_targets, glyphs.test_inputs, glyphs.test_targets
    )
    steps: list[tuple[int, int]] = []
    run_job(config, cohort, cohort.runs, 1.5, other, tmp_path, lambda *at: steps.append(at))
    assert steps[0] == (0, 1)


def test_other_code_does_not_resume(glyphs, tmp_path, monkeypatch) -> None:
    config, cohort = study()
    run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path)
    monkeypatch.setattr("oso_dp.training.job.code_hash", lambda: "another")
    steps: list[tuple[int, int]] = []
    run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path, lambda *at: steps.append(at))
    assert steps[0] == (0, 1)


def test_with_the_systems_entropy_no_two_trainings_agree(glyphs, tmp_path) -> None:
    """The same runs twice: the same books, other noise; and no identity shared with seeded runs."""
    config, cohort = study(randomness="system")
    seeded = study()[1]
    assert not {run.run_id for run in cohort.runs} & {run.run_id for run in seeded.runs}
    first, second = (
        run_job(config, cohort, cohort.runs[:1], 1.5, glyphs, tmp_path / name) for name in "ab"
    )
    assert first.runs[0]["ledger"] == second.runs[0]["ledger"]
    losses = [[row["loss"] for row in rows.evaluations] for rows in (first, second)]
    assert not set(losses[0]) & set(losses[1])


def test_another_number_of_runs_at_once_after_a_kill(glyphs, tmp_path) -> None:
    """What was half done is done again, with the same noise; nothing is mixed up."""
    config, cohort = study(runs_at_once=1)
    whole = run_job(config, cohort, cohort.runs, 1.5, glyphs, tmp_path / "whole")

    def kill(done: int, step: int) -> None:
        if (done, step) == (1, 6):
            raise KilledError

    folder = tmp_path / "killed"
    with pytest.raises(KilledError):
        run_job(config, cohort, cohort.runs, 1.5, glyphs, folder, kill)
    config, cohort = study(runs_at_once=2)
    resumed = run_job(config, cohort, cohort.runs, 1.5, glyphs, folder)
    assert without_time(resumed.runs) == without_time(whole.runs)


def test_a_row_says_how_its_search_is_priced(glyphs, tmp_path) -> None:
    for selection in ("composition", "random_stopping"):
        config, cohort = study(selection=selection)
        folder = tmp_path / selection
        (row,) = run_job(config, cohort, cohort.runs[:1], 1.5, glyphs, folder).runs
        assert row["selection"] == cohort.selection == selection
