"""One step without noise against Opacus (hooks, then DPOptimizer), in float64."""

import warnings

import pytest
import torch
from tests.gradients.one_run import OneRun
from tests.privacy.helpers import batch_of
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from oso_dp.gradients import GradientEngine
from oso_dp.methods import State, find_method
from oso_dp.models import build_model
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient, Runs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import, about itself
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

EXAMPLES, BATCH, RHO = 40, 12, 0.1
RUNS = ["a", "b"]
MODELS = {
    "cnn": ((1, 28, 28), "accuracy"),
    "autoencoder": ((1, 28, 28), "mse"),
    "bag_of_words": ((750,), "accuracy"),
}
# Opacus divides by the norm plus 1e-6. Of gradients this long, that is below 1e-9.
SCALE = 1e6


class Problem:
    """A model, data, and for each of two runs parameters and a threshold in the midst of norms."""

    def __init__(self, name: str) -> None:
        shape, metric = MODELS[name]
        torch.manual_seed(0)
        self.models = [build_model(name).double() for _ in RUNS]
        self.inputs = torch.rand(EXAMPLES, *shape, dtype=torch.double)
        classes = torch.randint(0, 4, (EXAMPLES,))
        self.targets = self.inputs if metric == "mse" else classes
        self.engine = GradientEngine(build_model(name).double(), self.loss)
        self.per_example = LOSSES[metric]
        flat = [parameters_to_vector(model.parameters()).detach() for model in self.models]
        self.parameters = torch.stack(flat)
        self.norms = [OneRun(self.engine, each, self.inputs, self.targets).norms() for each in flat]
        self.thresholds = torch.stack([self.norms[0].quantile(0.3), self.norms[1].quantile(0.7)])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return SCALE * self.per_example(outputs, targets)


def ours(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """A step of FixedThreshold for both runs together: batches, gradients, parameters after it."""
    mechanism = Mechanism(RUNS, EXAMPLES, BATCH)
    kind = find_method("fixed_threshold")
    method = kind(kind.Options(), momentum=0.9)
    rho = torch.full((len(RUNS),), RHO, dtype=torch.double)
    state = State(problem.parameters.clone(), rho, problem.thresholds, rho, 0.0, BATCH)
    batches = [torch.empty(0)] * len(RUNS)

    def gradients_of(runs: Runs, batch: Tensor):
        for run, row in zip(torch.arange(len(RUNS))[runs].tolist(), batch, strict=True):
            batches[run] = row
        at = state.parameters[runs]
        return problem.engine(at, problem.inputs[batch], problem.targets[batch])

    answers = mechanism.release(slice(0, len(RUNS)), 1, method.queries(state), gradients_of)
    method.update(state, answers)
    return batches, answers[ClippedGradient], state.parameters


def opacus(problem: Problem, run: int, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The same step of one run: gradient and parameters after it."""
    model: nn.Module = problem.models[run]
    vector_to_parameters(problem.parameters[run], model.parameters())
    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=RHO, momentum=0.9),
        noise_multiplier=0.0,
        max_grad_norm=problem.thresholds[run].item(),
        expected_batch_size=BATCH,
    )
    with warnings.catch_warnings():
        # The first layer's inputs need no gradient, and its hook is content without.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        problem.loss(wrapped(problem.inputs[batch]), problem.targets[batch]).mean().backward()
    optimizer.step()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    return gradient, parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("name", MODELS)
def test_fixed_threshold_noiseless_step_matches_opacus(name: str) -> None:
    problem = Problem(name)
    batches, gradients, parameters = ours(problem)
    sizes = set()
    for run, run_id in enumerate(RUNS):
        batch = batch_of(Mechanism(RUNS, EXAMPLES, BATCH).random_numbers, run_id, 1)
        assert batches[run][: len(batch)].tolist() == batch.tolist()
        sizes.add(len(batch))
        clipped = problem.norms[run][batch] > problem.thresholds[run]
        assert clipped.any()
        assert not clipped.all()
        gradient, after = opacus(problem, run, batch)
        torch.testing.assert_close(gradients[run], gradient, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(parameters[run], after, rtol=1e-8, atol=1e-9)
    assert len(sizes) == len(RUNS)  # one of them was padded
