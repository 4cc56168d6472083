"""The norms of users' updates: those of the training that is followed, of all users."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.study.test_user_unit import study
from torch import nn

from oso_dp.analysis.side_measurements import ROOT, UPDATE_NORMS, WHOLE
from oso_dp.cli.diagnose import updates as command
from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics.inputs import find_run, read_inputs
from oso_dp.diagnostics.update_norms import measure_update_norms
from oso_dp.errors import OsoError
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.reporting.figures.update_norms import layers_chart, threshold_chart
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, write_plan
from oso_dp.training.loop import train
from oso_dp.training.task import initial_parameters, make_model

LOCAL = LocalTraining(epochs=2, batch_size=4, learning_rate=0.1)


@pytest.fixture(scope="module")
def owned(arrays) -> Arrays:
    """Forty users of five rows."""
    return replace(arrays, train_users=np.arange(200) // 5)


def test_measure_update_norms_leaves_training_unchanged(owned, make_task, make_run) -> None:
    task = make_task("fixed_quantile", noise_multiplier=0.5, local=LOCAL)
    run = make_run(c=0.1)
    rows = [row for row in measure_update_norms(task, run, owned, 4) if row.layer == WHOLE]
    assert [row.step for row in rows] == [1, 5, 9]
    (outcome,) = train(task, [run], owned)
    followed = {one["step"]: one["threshold"] for one in outcome.evaluations}
    # The value after step t is the one before step t + 1.
    assert [row.threshold for row in rows[1:]] == [followed[4], followed[8]]
    assert all(row.q10 < row.q30 < row.q50 < row.q70 < row.q90 for row in rows)


def test_measure_update_norms_fedsgd_equals_gradients(owned, make_task, make_run) -> None:
    task = make_task("fixed_threshold", local=LocalTraining())
    first, *others = [row for row in measure_update_norms(task, make_run(), owned, 50)]
    model, norms = make_model(task, 0), []
    assert torch.equal(
        nn.utils.parameters_to_vector(model.parameters()).detach(), initial_parameters(task, 0)
    )
    by_layer: dict[str, list[float]] = {}
    for user in range(40):
        rows = torch.from_numpy(owned.train_inputs[owned.train_users == user])
        targets = torch.from_numpy(owned.train_targets[owned.train_users == user])
        model.zero_grad()
        nn.functional.cross_entropy(model(rows), targets).backward()
        norms.append(math.hypot(*(float(p.grad.norm()) for p in model.parameters())))
        for name, layer in model.named_children():
            if own := [float(p.grad.norm()) for p in layer.parameters()]:
                by_layer.setdefault(name, []).append(math.hypot(*own))
    assert first.mean == pytest.approx(np.mean(norms), rel=1e-4)
    assert first.q30 == pytest.approx(np.quantile(norms, 0.3), rel=1e-4)
    assert {row.layer: row.mean for row in others} == {
        name: pytest.approx(np.mean(values), rel=1e-4) for name, values in by_layer.items()
    }


class Bare(nn.Linear):
    """A model that is one layer."""

    def __init__(self) -> None:
        super().__init__(14 * 14, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.flatten(1))


def test_measure_update_norms_layerless_model_named(owned, make_task, make_run) -> None:
    """A model without layers has one row named `ROOT`, not an empty name."""
    task = make_task("fixed_threshold", local=LocalTraining(), network=Bare)
    whole, root = measure_update_norms(task, make_run(), owned, 50)
    assert (whole.layer, root.layer) == (WHOLE, ROOT)
    assert whole.mean == root.mean > 0


def test_measure_update_norms_examples_rejected(arrays, make_task, make_run) -> None:
    with pytest.raises(OsoError, match="unit: example; must be user"):
        list(measure_update_norms(make_task("online"), make_run(), arrays, 1))


@pytest.fixture
def plan(tmp_path, monkeypatch) -> Path:
    """A plan of users; a few digits of sixty users are read in place of its data."""
    methods = {"online": {}, "fixed_quantile": {"count_noise": 1.0}}
    config = study(local={"batch_size": 2, "learning_rate": 0.1}) | {"methods": methods}
    write_plan(make_plan(parse_config(config | {"epochs": 1}, "x")), tmp_path / "plan.json")
    inputs = np.random.default_rng(0).random((180, 1, 28, 28), dtype=np.float32)
    targets = np.arange(180) % 10
    arrays = Arrays(inputs, targets, inputs[:20], targets[:20], np.arange(180) // 3)
    monkeypatch.setattr("oso_dp.diagnostics.inputs.load_prepared", lambda *asked: arrays)
    return tmp_path / "plan.json"


def test_updates_command_appends_runs_to_table(plan, tmp_path) -> None:
    where = {"plan": plan, "data": tmp_path / "data.npz", "output": tmp_path / "norms.csv"}
    for method in ("online", "fixed_quantile"):
        command(cohort=f"mnist_writers.{method}.k2.eps8", **where, every=9, threads=1)
    table = UPDATE_NORMS.read(where["output"])
    assert set(table["method"]) == {"online", "fixed_quantile"}
    assert sorted(table["step"].unique()) == [1, 10]
    whole = table["layer"] == WHOLE
    panels = [axes.get_title() for axes in threshold_chart(table[whole], "x").draw().axes]
    assert panels == ["Online, ε = 8, C₀ = 0.1", "FixedQuantile, ε = 8, γ = 0.1, C₀ = 0.1"]
    # A run that differs in where C starts alone has a panel of its own.
    far = table[whole].assign(run_id="far", threshold=100.0)
    both = pd.concat([table[whole], far])
    assert len(threshold_chart(both, "x").draw().axes) == 4
    assert layers_chart(table[~whole], "y").draw() is not None
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(OsoError, match="is not a table of update norms"):
        command(cohort=NAME, **where | {"output": tmp_path / "mine.csv"}, every=9, threads=1)


NAME = "mnist_writers.fixed_quantile.k2.eps8"


def test_read_inputs_unit_or_point_rejected(plan) -> None:
    with pytest.raises(OsoError, match="unit: user; must be example, whose gradients or updates"):
        read_inputs(plan, NAME, plan)
    chosen, _, _ = read_inputs(plan, NAME, plan, unit="user")
    assert find_run(chosen, learning_rate=None, quantile=0.7).quantile == 0.7
    with pytest.raises(OsoError, match=r"--quantile: 0\.2; must be one of 0\.1, 0\.3, 0\.5, 0\.7"):
        find_run(chosen, quantile=0.2)
    online, _, _ = read_inputs(plan, "mnist_writers.online.k2.eps8", plan, unit="user")
    with pytest.raises(OsoError, match=r"--quantile: 0\.5; must be one of none"):
        find_run(online, quantile=0.5)
