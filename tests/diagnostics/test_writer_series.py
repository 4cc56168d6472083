"""Accuracy by who wrote the test digits: where the series lie, what is measured, and its figure."""

import gzip
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.study.test_user_unit import study

from oso_dp.analysis.result_set import ResultSet, list_grids
from oso_dp.analysis.side_measurements import WRITER_SERIES
from oso_dp.cli.diagnose import series as command
from oso_dp.data.arrays import Arrays
from oso_dp.data.mnist import TEST_SERIES, parse_idx
from oso_dp.diagnostics.writer_series import measure_series
from oso_dp.errors import OsoError
from oso_dp.reporting.figures.users import figures, series_chart, series_of_best
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan
from oso_dp.training.job import run_job
from oso_dp.training.loop import train


def test_writer_series_match_qmnist(shared) -> None:
    file = shared / "data/qmnist/qmnist-test-labels-idx2-int.gz"
    table = parse_idx(gzip.decompress(file.read_bytes()), str(file))
    hsf = table[:10000, 1]  # the series of MNIST's test digits
    assert (hsf[TEST_SERIES["students"]] == 4).all()
    assert (hsf[TEST_SERIES["employees"]] == 0).all()
    assert len(hsf[TEST_SERIES["students"]]) + len(hsf[TEST_SERIES["employees"]]) == 10000


@pytest.fixture(scope="module")
def digits() -> Arrays:
    """As many users and test rows as MNIST has, with two rows each."""
    random = np.random.default_rng(0)
    inputs = random.random((1078, 1, 28, 28), dtype=np.float32)
    test = np.resize(inputs, (10000, 1, 28, 28)) + random.random((10000, 1, 1, 1), dtype=np.float32)
    targets = np.arange(1078) % 10
    return Arrays(inputs, targets, test, np.resize(targets, 10000), np.arange(1078) // 2)


def test_measure_series_average_equals_test_accuracy(digits, make_task, make_run) -> None:
    task = replace(make_task("fixed_threshold"), model="softmax_regression", metric="accuracy")
    rows = {row.series: row.accuracy for row in measure_series(task, make_run(), digits)}
    (outcome,) = train(task, [make_run()], digits)
    (last,) = [
        row["value"]
        for row in outcome.evaluations
        if row["split"] == "test" and row["step"] == task.steps
    ]
    assert 0.5001 * rows["students"] + 0.4999 * rows["employees"] == pytest.approx(last)
    assert rows["students"] != rows["employees"]


@pytest.fixture
def stored(digits, tmp_path, monkeypatch) -> ResultSet:
    """Two grid points of Online and NoDP each, as the command finds them."""
    values = study() | {"epochs": 1, "seeds": [0, 1], "methods": {"online": {}, "no_dp": {}}}
    runs, evaluations = [], []
    for cohort in make_plan(parse_config(values, "x")).cohorts:
        part = run_job(cohort, cohort.runs, digits, tmp_path / cohort.name)
        runs += part.runs
        evaluations += part.evaluations
    found = ResultSet(pd.DataFrame(runs), pd.DataFrame(evaluations), list_grids([]))
    monkeypatch.setattr("oso_dp.analysis.load.read_result_set", lambda folder: found)
    monkeypatch.setattr(
        "oso_dp.data.arrays.load_arrays", lambda path: (digits, {"dataset": path.stem})
    )
    monkeypatch.setattr("oso_dp.data.validation.load_prepared", lambda *asked: digits)
    return found


def test_series_command_measures_best_points_once(stored, tmp_path, capsys) -> None:
    output, data = tmp_path / "series.csv", tmp_path / "mnist_writers.npz"
    command(data=data, output=output)
    table = WRITER_SERIES.read(output)
    assert set(table["run_id"]) == set(stored.best_runs["run_id"]) < set(stored.runs["run_id"])
    assert len(table) == 2 * len(stored.best_runs) == 8
    capsys.readouterr()
    command(data=data, output=output)  # nothing is left
    assert capsys.readouterr().out == ""
    assert WRITER_SERIES.read(output).equals(table)

    shown = replace(stored, writer_series=table)
    assert [figure.name for figure in figures(shown)] == [
        "writer_series_mnist_writers_softmax_regression"
    ]
    assert not [*figures(replace(stored, writer_series=table.iloc[2:]))]  # of a part
    (other,) = stored.runs.loc[~stored.runs["run_id"].isin(table["run_id"]), "run_id"].iloc[:1]
    once_best = table.iloc[:2].assign(run_id=other)
    assert series_of_best(replace(stored, writer_series=pd.concat([once_best, table]))).equals(
        table
    )
    figure = series_chart(table, "x", ["online", "no_dp"]).draw()
    for axes in figure.axes:
        here = table[table["series"] == axes.get_title()]
        means = 100 * here.groupby("method")["accuracy"].mean()
        drawn = {round(float(y), 6) for line in axes.lines for y in line.get_ydata()}
        assert {round(float(mean), 6) for mean in means} <= drawn
        assert len(axes.lines) >= 2

    with pytest.raises(OsoError, match=r"data set 'glyphs'; must be one of mnist, mnist_writers"):
        command(data=tmp_path / "glyphs.npz", output=output)
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(OsoError, match="is not a table of writer series"):
        command(data=data, output=tmp_path / "mine.csv")
