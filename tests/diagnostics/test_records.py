"""What a probe measured is written down with the digits that a reader compares."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from oso_dp.diagnostics.cosine import Similarity
from oso_dp.diagnostics.record import write_signs, write_similarities
from oso_dp.diagnostics.signs import StepSigns

RUN = SimpleNamespace(run_id="a", seed=0, learning_rate=0.316228)
COHORT = SimpleNamespace(
    dataset="glyphs", model="small_cnn", method="online", k=9, epsilon=0.68264, runs=[RUN]
)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
def test_cosines_keep_six_digits(scale: float, tmp_path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        Similarity(step, 0.837244, c, 0.101267, 20, *(scale * draw.random(4)))
        for step in (100, 950)
        for c in (0.0215443, 46.4159)
    ]
    write_similarities(tmp_path / "x.csv", COHORT, SimpleNamespace(device="cpu"), rows)
    stored = pd.read_csv(tmp_path / "x.csv")
    for line, row in zip(stored.to_dict("records"), rows, strict=True):
        for name, value in (asdict(row) | {"epsilon": 0.68264, "learning_rate": 0.316228}).items():
            assert line[name] == pytest.approx(value, rel=5.1e-6), name


@pytest.mark.parametrize("epsilon", [2.71828, 0.123456789, 3.0, None])
def test_a_budget_is_not_rounded_as_a_measured_number_is(epsilon, tmp_path) -> None:
    for run, budget in (("a", 9.0), ("b", epsilon)):
        cohort = SimpleNamespace(**{**vars(COHORT), "epsilon": budget})
        run = SimpleNamespace(**{**vars(RUN), "run_id": run})
        write_signs(tmp_path / "x.csv", cohort, run, [StepSigns(2, *[0.1] * 10)])
    stored = pd.read_csv(tmp_path / "x.csv").set_index("run_id")["epsilon"]
    assert stored["a"] == 9.0
    assert pd.isna(stored["b"]) if epsilon is None else stored["b"] == epsilon
