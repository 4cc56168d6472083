"""The signs that move C and rho: those that the run took, beside those without noise."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from oso_dp.analysis.side_measurements import ADAPTATION_SIGNS
from oso_dp.cli.diagnose import signs as command
from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics import signs as module
from oso_dp.diagnostics.signs import StepSigns, measure_signs
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.study.cohort import Run
from oso_dp.study.plan import read_plan
from oso_dp.training.loop import train
from oso_dp.training.task import StudyTask

EXAMPLES = 60


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    draw = np.random.default_rng(1)
    inputs = draw.random((EXAMPLES, 1, 14, 14), dtype=np.float32)
    targets = draw.integers(0, 10, EXAMPLES)
    return Arrays(inputs, targets, inputs[:10], targets[:10])


def task(noise_multiplier=1.0, batch_size=30, name="online", steps=9, **settings) -> StudyTask:
    method = find_method(name)
    return StudyTask(
        method=method(method.Options(**settings), 0.9),
        model="small_cnn",
        metric="accuracy",
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        steps=steps,
        evaluate_every=steps,
    )


def start(learning_rate=0.3, threshold=0.1) -> Run:
    return Run("r", 0, learning_rate, threshold, None)


def test_measure_signs_match_adapted_values(arrays) -> None:
    rows = list(measure_signs(task(), start(), arrays, 9))
    assert [row.step for row in rows] == list(range(2, 10))
    for row, after in pairwise(rows):
        up = math.log(after.threshold / row.threshold) / 2.5e-3
        assert up == pytest.approx(math.copysign(1, row.direction), abs=1e-3)
        up = math.log(after.learning_rate / row.learning_rate) / 2.5e-3
        assert up == pytest.approx(math.copysign(1, row.gradient), abs=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_measure_signs_leaves_training_unchanged(precision: str, arrays) -> None:
    seen = []
    told = replace(task(), precision=precision)
    train(
        told,
        [start()],
        arrays,
        watch=lambda state, _: seen.append((float(state.threshold), float(state.learning_rate))),
    )
    rows = list(measure_signs(told, start(), arrays, 9))
    assert [(row.threshold, row.learning_rate) for row in rows] == seen[1:]


def test_measure_signs_tiny_noise_equals_true(arrays) -> None:
    for row in measure_signs(task(1e-6), start(), arrays, 6):
        assert row.direction == pytest.approx(row.true_direction, abs=1e-3)
        assert row.gradient == pytest.approx(row.true_gradient, abs=1e-3)
        assert abs(row.gradient_z) > 100


def test_measure_signs_noise_in_released_only(arrays) -> None:
    still = start(learning_rate=1e-12)
    rows = list(measure_signs(task(1e3, EXAMPLES), still, arrays, 6))
    for row in rows:
        assert (row.true_gradient, row.true_direction) == pytest.approx((1, 1))
        assert abs(row.gradient) < 0.2
        assert 0 < row.gradient_z < 1e-3
    assert [row.true_two_apart for row in rows[1:]] == pytest.approx([1] * 4)
    assert math.isnan(rows[0].true_two_apart)


def test_compare_uses_successive_releases() -> None:
    draw = torch.Generator().manual_seed(1)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        first, second = torch.randn(2, 40, generator=draw, dtype=torch.float64)
        return first, second

    def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
        return float(torch.nn.functional.cosine_similarity(one, other, dim=0))

    oldest, before, now = (
        module._Release(0.1 * at, 0.2 * at, pair(), pair(), (0.3 * at, 0.5 * at), 0.25 * at)
        for at in (1, 2, 3)
    )
    row = module._compare(7, [oldest, before, now])
    assert (row.step, row.threshold, row.learning_rate, row.clipped) == pytest.approx(
        (7, 0.3, 0.6, 0.75)
    )
    assert row.direction == pytest.approx(cosine(now.noisy[0], before.noisy[1]))
    assert row.gradient == pytest.approx(cosine(now.noisy[0], before.noisy[0]))
    assert row.true_direction == pytest.approx(cosine(now.true[0], before.true[1]))
    assert row.true_gradient == pytest.approx(cosine(now.true[0], before.true[0]))
    assert row.true_two_apart == pytest.approx(cosine(now.true[0], oldest.true[0]))
    for which, z in ((1, row.direction_z), (0, row.gradient_z)):
        a, b = now.true[0], before.true[which]
        noise = torch.randn(2, 20_000, 40, generator=draw, dtype=torch.float64)
        products = ((a + now.noise[0] * noise[0]) * (b + before.noise[which] * noise[1])).sum(1)
        assert float(a @ b / products.std()) == pytest.approx(z, rel=0.03)


def test_measure_signs_other_method_rejected(arrays) -> None:
    with pytest.raises(OsoError, match="method: fixed_threshold; must be online"):
        next(measure_signs(task(name="fixed_threshold"), start(), arrays, 2))


def test_measure_signs_diverged_run_raises(arrays) -> None:
    with pytest.raises(OsoError, match="run r: diverged at step 1 of 2"):
        next(measure_signs(task(), start(math.inf), arrays, 2))


COHORT = "glyphs.online.k2.eps3"


@pytest.fixture
def asked(monkeypatch) -> list:
    """Stands in for the probe; what it was asked for."""
    calls: list = []
    numbers = (0.1, 0.5, -0.25, 0.125, -0.75, 0.0625, -2.0, 1.5, 0.875, 1.0)

    def follow(*given):
        calls.append(given)
        return iter([StepSigns(step, *numbers) for step in range(2, given[-1] + 1)])

    monkeypatch.setattr("oso_dp.diagnostics.signs.measure_signs", follow)
    return calls


def test_signs_command_adds_or_replaces_run(planned, tmp_path, asked, monkeypatch) -> None:
    plan, data = planned
    runs = read_plan(plan).cohort(COHORT).runs
    # Digits that pandas would read as a number.
    monkeypatch.setattr("oso_dp.diagnostics.record.code_hash", lambda: "88830e938778")
    output = tmp_path / "out" / "signs.csv"
    command(plan, COHORT, data, output, steps=3)
    command(plan, COHORT, data, output, learning_rate=runs[-1].learning_rate)
    command(plan, COHORT, data, output, steps=4)  # in the first one's place
    assert [given[1].run_id for given in asked] == [runs[i].run_id for i in (0, -1, 0)]
    assert runs[0].run_id != runs[-1].run_id
    stored = ADAPTATION_SIGNS.read(output)
    assert dict(stored.groupby("run_id")["step"].max()) == {
        runs[0].run_id: 4,
        runs[-1].run_id: 10,  # all steps of the plan
    }
    first = stored.iloc[0]
    assert (first["dataset"], first["method"], first["k"]) == ("glyphs", "online", 2)
    assert (first["direction"], first["true_gradient"], first["clipped"]) == (-0.25, 0.0625, 1.0)
    assert first["code_hash"] == "88830e938778"
