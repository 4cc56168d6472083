"""True and sanitized gradients: what is probed, what comes out, what is written down."""

import math
import statistics
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from oso_dp.cli.diagnose import cosine
from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics import cosine as module
from oso_dp.diagnostics.cosine import Probe, Similarity, measure_similarities
from oso_dp.diagnostics.inputs import read_inputs
from oso_dp.diagnostics.record import write_signs, write_similarities
from oso_dp.diagnostics.signs import StepSigns
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.models import build_model
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.study.cohort import Run
from oso_dp.study.plan import read_plan, write_plan
from oso_dp.training.loop import train
from oso_dp.training.provenance import code_hash
from oso_dp.training.task import StudyTask, initial_parameters

EXAMPLES = 60
HUGE, TINY = 1e6, 1e-3


@pytest.fixture(scope="module")
def arrays():
    draw = np.random.default_rng(1)
    inputs = draw.random((EXAMPLES, 1, 14, 14), dtype=np.float32)
    targets = draw.integers(0, 10, EXAMPLES)
    return Arrays(inputs, targets, inputs[:10], targets[:10])


def task(noise_multiplier=0.0, batch_size=30, model="small_cnn", metric="accuracy", **other):
    method = find_method("fixed_threshold")
    known = {"method": method(method.Options(), 0.9), "steps": 9, "evaluate_every": 9}
    known |= {"noise_multiplier": noise_multiplier, "batch_size": batch_size}
    return StudyTask(**known, model=model, metric=metric, **other)


def start(learning_rate=0.1):
    return Run("r", 0, learning_rate, 1.0, None)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_probe_autoencoder_sum_matches_autograd(loss):
    images = np.random.default_rng(2).random((12, 1, 28, 28), dtype=np.float32)
    labels = np.zeros(12, dtype=np.int64)
    arrays = Arrays(images, labels, images[:2], labels[:2])
    autoencoder = task(batch_size=6, model="autoencoder", metric="mse", loss=loss)
    probe = Probe(autoencoder, start(), arrays, 1)
    found = probe._sum(initial_parameters(autoencoder, 0), torch.arange(12))
    model = build_model("autoencoder", False)
    torch.nn.utils.vector_to_parameters(initial_parameters(autoencoder, 0), model.parameters())
    torch.nn.functional.mse_loss(
        model(torch.from_numpy(images)), torch.from_numpy(images)
    ).backward()
    pixels = 1 if loss == "mean" else 28 * 28
    true = torch.cat([p.grad.flatten() for p in model.parameters()]) * 12 * pixels
    assert torch.allclose(found.float(), true, rtol=1e-3, atol=1e-5 * pixels)


def test_measure_similarities_without_clipping_equals_one(arrays):
    rows = measure_similarities(task(), start(), arrays, (1, 2), (TINY, HUGE), realisations=3)
    assert [(row.step, row.threshold) for row in rows] == [
        *((1, TINY), (1, HUGE), (2, TINY), (2, HUGE))
    ]
    for row in rows:
        assert row.realisations == 3
        assert row.run_threshold == 1.0
        if row.threshold == HUGE:
            assert row.batch_mean == pytest.approx(1, abs=1e-5)
            assert row.batch_std == pytest.approx(0, abs=1e-5)
        else:  # every example counts alike, whatever its gradient's length
            assert 0.5 < row.batch_mean < 0.99999
        # A batch is a sample of the data.
        assert 0 < row.data_mean < 0.9999
        assert row.data_std > 1e-4


def test_measure_similarities_full_batch_equals_data(arrays):
    moving = start(learning_rate=1.0)
    rows = measure_similarities(task(batch_size=EXAMPLES), moving, arrays, (1, 4, 9), (HUGE,), 2)
    for row in rows:
        assert row.data_mean == pytest.approx(row.batch_mean, abs=1e-5), row.step


@pytest.mark.parametrize("at_once", [7, 25, 59, 60, 61])
def test_probe_sum_independent_of_chunks(arrays, at_once, monkeypatch):
    probe, batch = Probe(task(), start(), arrays, 1), torch.arange(EXAMPLES)
    parameters = initial_parameters(task(), 0)
    alone = sum(probe._sum(parameters, one) for one in batch.split(1))
    monkeypatch.setattr(module, "_BATCH", at_once)
    torch.testing.assert_close(probe._sum(parameters, batch), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("realisations", [1, 2, 5])
def test_measure_similarities_uses_sample_std(arrays, realisations, monkeypatch):
    seen, true = [], module.cosine_between
    monkeypatch.setattr(
        module, "cosine_between", lambda one, other: seen.append(true(one, other)) or seen[-1]
    )
    (row,) = measure_similarities(task(0.1), start(), arrays, (1,), (1.0,), realisations)
    for mean, std, values in (
        (row.batch_mean, row.batch_std, seen[:realisations]),
        (row.data_mean, row.data_std, seen[realisations:]),
    ):
        assert mean == pytest.approx(statistics.mean(values))
        expected = statistics.stdev(values) if realisations > 1 else math.nan
        assert std == pytest.approx(expected, nan_ok=True)


def test_measure_similarities_releases_draw_fresh_noise(arrays, monkeypatch):
    used = []
    fill = Seeded.fill

    def spy(self, out, *whose):
        used.append(whose)
        fill(self, out, *whose)

    monkeypatch.setattr(Seeded, "fill", spy)
    measure_similarities(task(1.0), start(), arrays, (1, 2), (0.1, 1.0), realisations=2)
    assert len(used) == 2 + 2 * 2 * 2  # the run's steps, and steps x thresholds x realisations
    assert len(set(used)) == len(used)


def test_measure_similarities_probes_before_step(arrays, monkeypatch):
    """The probe gets the parameters before step t: at t = 1 the initial ones."""
    at = []
    compare = Probe.compare
    monkeypatch.setattr(
        Probe,
        "compare",
        lambda self, step, parameters, *more: (
            at.append((step, parameters)) or compare(self, step, parameters, *more)
        ),
    )
    measure_similarities(task(), start(), arrays, (1, 3), (1.0,), realisations=1)
    assert [step for step, _ in at] == [1, 3]
    assert torch.equal(at[0][1], initial_parameters(task(), 0))
    states = {}
    train(
        task(),
        [start()],
        arrays,
        watch=lambda state, _: states.setdefault(state.step, state.parameters[0].clone()),
    )
    assert torch.equal(at[1][1], states[3])


def test_measure_similarities_diverged_run_raises(arrays):
    with pytest.raises(OsoError, match="run r: diverged at step 1 of 2"):
        measure_similarities(task(1.0), start(math.inf), arrays, (2,), (1.0,), realisations=1)


def test_cosine_command_writes_probe_and_provenance(planned, tmp_path, monkeypatch):
    asked = []
    row = Similarity(1, 0.7, 0.1, 0.2, 20, 0.5, 0.01, 0.4, 0.02)
    monkeypatch.setattr(
        "oso_dp.diagnostics.cosine.measure_similarities",
        lambda *given, noise_multipliers: asked.append((*given, noise_multipliers)) or [row],
    )
    cosine(*planned[:1], "glyphs.online.k2.eps3", planned[1], tmp_path / "out/x.csv", steps=[1])
    ((given, at, _, steps, noise),) = asked
    assert noise == [given.noise_multiplier, 0.01]
    assert (given.model, given.batch_size, at.threshold, steps) == ("small_cnn", 600, 0.1, (1,))
    (stored,) = pd.read_csv(tmp_path / "out/x.csv", dtype={"code_hash": str}).to_dict("records")
    assert stored["run_id"] == at.run_id
    assert stored.items() >= asdict(row).items()
    assert stored["code_hash"] == code_hash()


@pytest.mark.parametrize(
    ("cohort", "steps", "message"),
    [
        ("glyphs.online.k2.eps3", [10**6], "--steps: .*; must be distinct and <= 10"),
        ("glyphs.online.k2.eps3", [2, 3, 2], "^--steps: 2, 3, 2; must be distinct"),
        ("glyphs.online.k2.eps3", None, "^--steps: missing; must be set and <= 10, .* 950"),
        ("glyphs.no_dp.k2.nonprivate", [1], "not private"),
    ],
)
def test_cosine_command_invalid_request_rejected(planned, tmp_path, cohort, steps, message):
    with pytest.raises(OsoError, match=message):
        cosine(planned[0], cohort, planned[1], tmp_path / "x.csv", steps=steps)


@pytest.mark.parametrize("share", [0.5, 0.99, 1.0])
def test_read_inputs_noise_over_budget_raises(planned, tmp_path, share) -> None:
    plan, data = planned
    name = "glyphs.online.k2.eps3"
    made = read_plan(plan)
    cohorts = tuple(
        replace(one, noise_multiplier=share * one.noise_multiplier) if one.name == name else one
        for one in made.cohorts
    )
    write_plan(replace(made, cohorts=cohorts), tmp_path / "plan.json")
    if share == 1.0:
        assert read_inputs(tmp_path / "plan.json", name, data)[0].name == name
        return
    with pytest.raises(OsoError, match=f"{name}: noise_multiplier: .* would cost epsilon"):
        read_inputs(tmp_path / "plan.json", name, data)


@pytest.mark.parametrize("flag", [True, False])
def test_probe_follows_final_activation(flag: bool) -> None:
    inputs = np.random.default_rng(0).random((40, 1, 14, 14), dtype=np.float32)
    targets = np.arange(40) % 10
    method = find_method("fixed_threshold")
    task = StudyTask(
        method=method(method.Options(), 0.9),
        model="small_cnn",
        metric="accuracy",
        noise_multiplier=1.0,
        batch_size=20,
        steps=9,
        evaluate_every=9,
        final_activation=flag,
    )
    arrays = Arrays(inputs, targets, inputs[:4], targets[:4])
    probe = Probe(task, Run("r", 0, 0.1, 1.0, None), arrays, 2)
    outputs = probe.engine.outputs(initial_parameters(task, 0), torch.from_numpy(inputs))
    assert bool((outputs >= 0).all()) == flag


RUN = SimpleNamespace(run_id="a", seed=0, learning_rate=0.316228)
COHORT = SimpleNamespace(
    dataset="glyphs", model="small_cnn", method="online", k=9, epsilon=0.68264, runs=[RUN]
)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
def test_write_similarities_keeps_six_digits(scale: float, tmp_path) -> None:
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
def test_write_signs_epsilon_not_rounded(epsilon, tmp_path) -> None:
    for run, budget in (("a", 9.0), ("b", epsilon)):
        cohort = SimpleNamespace(**{**vars(COHORT), "epsilon": budget})
        run = SimpleNamespace(**{**vars(RUN), "run_id": run})
        write_signs(tmp_path / "x.csv", cohort, run, [StepSigns(2, *[0.1] * 10)])
    stored = pd.read_csv(tmp_path / "x.csv").set_index("run_id")["epsilon"]
    assert stored["a"] == 9.0
    assert pd.isna(stored["b"]) if epsilon is None else stored["b"] == epsilon
