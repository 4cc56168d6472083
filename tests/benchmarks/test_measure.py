"""Turns, rows, ratios, pairs of turns: what the benchmarks make of the steps that were timed."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oso_dp.analysis.side_measurements import STEP_TIMES

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from estimate import device_hours
from measure import Bench, _fill_in, _take_turns
from rows import Row

sys.path.pop(0)


def a_row(name: str, runs: int, seconds: float, model: str = "cnn") -> Row:
    row = Row(
        "cpu", 1, model, 512, name, runs, "float32", "ok", seconds, seconds, seconds, 1 / seconds
    )
    row.peak_mib = 100 * seconds
    return row


def test_device_hours_uses_fastest_run_count() -> None:
    methods = ["online", "fixed_threshold", "fixed_quantile", "adam_wosm"]
    rows = [a_row(name, runs, 3600 / runs) for name in methods for runs in (1, 8)]
    assert device_hours(rows, "cnn") == pytest.approx(6_040 * 1172 / 8)
    rows.append(a_row("opacus_ghost", 1, 1.0))
    assert device_hours(rows, "cnn", "opacus_ghost") == pytest.approx(6_040 * 1172 / 3600)
    assert device_hours(rows, "autoencoder") is None
    del rows[:2]  # Online's
    assert device_hours(rows, "cnn") is None


class FakeChild:
    """Takes steps of a fixed length, and writes down whose turn it was."""

    def __init__(self, name: str, length: float, turns: list[str]) -> None:
        self.name, self.length, self.turns = name, length, turns
        self.seconds: list[float] = []
        self.used = 0.0
        self.version = ""

    def turn(self, seconds: float) -> None:
        self.turns.append(self.name)
        steps = max(1, round(seconds / self.length))
        self.seconds += [self.length] * steps
        self.used += steps * self.length

    def end(self) -> int:
        return 2**20

    def evaluate(self) -> float:
        return 80.0


def test_take_turns_interleaves_until_time_up() -> None:
    turns: list[str] = []
    lengths = {"fast": 0.25, "medium": 2.0, "slow": 100.0}
    children = [FakeChild(name, length, turns) for name, length in lengths.items()]
    bench = Bench([], [], [], seconds=8.0, device="cpu", device_name="cpu", threads=1)
    _take_turns(bench, [(c, a_row("sgd", 1, 1.0)) for c in children], say=lambda text: None)
    assert [len(c.seconds) for c in children] == [32, 4, 3]
    assert turns[:5] == ["fast", "medium", "slow", "fast", "fast"]
    places = [i for i, name in enumerate(turns) if name == "medium"]
    assert places[-1] > len(turns) / 2  # not all of its steps at the beginning


def test_fill_in_divides_step_by_runs() -> None:
    row = a_row("online", 8, 1.0)
    child = FakeChild("online", 1.0, [])
    child.seconds = [8.0, 16.0, 32.0]
    _fill_in(row, child)
    assert (row.seconds_per_run_step, row.run_steps_per_second) == (2.0, 0.5)
    assert (row.lower_quartile, row.upper_quartile) == (1.5, 3.0)
    assert (row.peak_mib, row.timed_steps) == (1.0, 3)
    assert row.evaluation_share == 10 / (10 + 50 * 2)  # of eight runs together


@pytest.fixture
def module(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    import step_times

    return step_times


def test_interval_matches_student_t(module) -> None:
    ratio, low, high = module.interval([math.log(1.0), math.log(1.2), math.log(1.44)])
    assert ratio == pytest.approx(1.2, rel=1e-3)
    half = 4.3027 * math.log(1.2) / math.sqrt(3)
    assert (low, high) == pytest.approx((ratio / math.exp(half), ratio * math.exp(half)), rel=1e-3)


def test_step_times_rows_readable_by_report(module, tmp_path, monkeypatch) -> None:
    usual = module.WORKLOADS["bag_of_words"]
    small = replace(usual, dataset="no_such_data", examples=700, tested=100)
    row = module.measure(small, threads=1, turns=3, seconds=0.05)
    assert (row["method"], row["rival"], row["turns"]) == ("online", "fixed_threshold", 3)
    assert float(row["low"]) < float(row["ratio"]) < float(row["high"])
    monkeypatch.setattr(module, "WORKLOADS", {"bag_of_words": small})
    monkeypatch.setattr(module, "measure", lambda workload, threads: row)
    assert module.main([str(tmp_path / "step_times.csv")]) == 0
    assert STEP_TIMES.read(tmp_path / "step_times.csv")["turns"].tolist() == [3]
