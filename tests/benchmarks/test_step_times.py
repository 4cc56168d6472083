"""The pairs of turns behind the claim on time."""

import math
from dataclasses import replace

import pytest

from oso_dp.analysis.side_measurements import read_step_times


@pytest.fixture
def module(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    import step_times

    return step_times


def test_the_interval_is_student_s_in_logarithms(module) -> None:
    ratio, low, high = module.interval([math.log(1.0), math.log(1.2), math.log(1.44)])
    assert ratio == pytest.approx(1.2, rel=1e-3)
    half = 4.3027 * math.log(1.2) / math.sqrt(3)
    assert (low, high) == pytest.approx((ratio / math.exp(half), ratio * math.exp(half)), rel=1e-3)


def test_a_row_is_what_the_report_reads(module, tmp_path, monkeypatch) -> None:
    usual = module.WORKLOADS["bag_of_words"]
    small = replace(usual, dataset="no_such_data", known_examples=700, tested=100)
    row = module.measure(small, threads=1, turns=3, seconds=0.05)
    assert (row["method"], row["rival"], row["turns"]) == ("online", "fixed_threshold", 3)
    assert float(row["low"]) < float(row["ratio"]) < float(row["high"])
    monkeypatch.setattr(module, "WORKLOADS", {"bag_of_words": small})
    monkeypatch.setattr(module, "measure", lambda workload, threads: row)
    assert module.main([str(tmp_path / "step_times.csv")]) == 0
    assert read_step_times(tmp_path / "step_times.csv")["turns"].tolist() == [3]
