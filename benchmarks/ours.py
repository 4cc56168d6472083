"""Ours: a method of the study, by the training loop that the study's jobs run.

Unlike the peers it is charged for all that a job does in a step: drawing each run's Poisson batch
from the whole data set, gathering it, seeded noise (or, by the name's ending, the system's), the
ledger, and the test for divergence.
"""

import numpy as np
import torch
from competitor import Competitor, Setting, flat_parameters, fresh_model
from torch import Tensor
from workloads import Data

import oso_dp
from oso_dp.data.arrays import Arrays
from oso_dp.methods import find_method
from oso_dp.study.cohort import Run
from oso_dp.training.loop import study_training
from oso_dp.training.task import StudyTask

_STEPS = 1_000_000  # never reached
SYSTEM_NOISE = "_system"  # the ending of a competitor's name


class Ours(Competitor):
    package = "oso"

    def __init__(self, setting: Setting, data: Data) -> None:
        super().__init__(setting, data)
        name = setting.competitor
        method_type = find_method(name.removesuffix(SYSTEM_NOISE))
        method = method_type(
            method_type.Options(**setting.method_options), momentum=setting.momentum
        )
        task = StudyTask(
            method=method,
            model=setting.model,
            metric=setting.workload.metric,
            noise_multiplier=setting.noise_multiplier if method.is_private else 0.0,
            batch_size=setting.batch_size,
            steps=_STEPS,
            evaluate_every=_STEPS,
            device=setting.device,
            precision=setting.precision,
            network=setting.workload.network,
            randomness="system" if name.endswith(SYSTEM_NOISE) else "seeded",
        )
        candidate = {"learning_rate": setting.learning_rate, "threshold": setting.threshold}
        point = method.initial_values({**candidate, "quantile": 0.5})
        runs = [Run(run_id=f"run {seed}", seed=seed, **point) for seed in range(setting.runs)]
        tested = data.first(setting.workload.tested)
        arrays = Arrays(data.inputs, data.targets, tested.inputs, tested.targets)
        self.training = study_training(task, runs, arrays)
        self.training.state.parameters.copy_(flat_parameters(fresh_model(setting, plain=False)))

    def step(self) -> None:
        self.training.take_step()

    def evaluate(self) -> None:
        for parameters in self.training.state.parameters:
            self.training.problem.scores(parameters)

    def parameters(self) -> np.ndarray:
        return self.training.state.parameters.cpu().numpy()

    def data_bytes(self) -> int:
        if self.setting.device == "cpu":
            return 0  # no copy: it reads the arrays where they are
        places = (self.training.problem.examples, self.training.problem.scores)
        held = [getattr(place, name, None) for place in places for name in ("inputs", "targets")]
        sizes = {each.data_ptr(): each.nbytes for each in held if isinstance(each, Tensor)}
        return sum(sizes.values())

    def version(self) -> str:
        return f"oso-dp {oso_dp.__version__}, torch {torch.__version__.partition('+')[0]}"
