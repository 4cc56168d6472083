"""What a probe looks at is what was planned, and paid for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics.cosine import Probe
from oso_dp.diagnostics.inputs import read_inputs
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.study.cohort import Run
from oso_dp.study.plan import read_plan, write_plan
from oso_dp.training.task import StudyTask, initial_parameters


@pytest.mark.parametrize("share", [0.5, 0.99, 1.0])
def test_noise_that_costs_more_than_the_budget_is_not_looked_at(planned, tmp_path, share) -> None:
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
def test_the_network_that_is_probed_is_the_one_that_trains(flag: bool) -> None:
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
    outputs = probe.code.outputs(initial_parameters(task, 0), torch.from_numpy(inputs))
    assert bool((outputs >= 0).all()) == flag
