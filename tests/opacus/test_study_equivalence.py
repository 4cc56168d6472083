"""A run through Opacus and one through the study's own loop, noise and batches injected."""

import pytest
import torch
from tests.opacus.helpers import QUIET, Recorded, loader_of, make, parameters_of, study_method
from tests.privacy.helpers import seeded_normals
from torch import Tensor

from oso_dp.data.arrays import Arrays
from oso_dp.methods import State
from oso_dp.models import build_model
from oso_dp.models.losses import cross_entropy
from oso_dp.study.cohort import Run
from oso_dp.training.loop import study_training
from oso_dp.training.task import StudyTask, TensorExamples

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

STEPS, BATCH, RHO, THRESHOLD, QUANTILE = 50, 20, 0.5, 0.3, 0.4
RUN = Run("a", 0, RHO, THRESHOLD, QUANTILE)


@pytest.fixture
def in_float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


class Loss:
    """The study's loss per example, in the form that Opacus's users have."""

    def __init__(self) -> None:
        self.reduction = "mean"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(outputs, targets)
        return losses if self.reduction == "none" else losses.mean()


def smallest_cosine(state: State, past: dict[str, Tensor]) -> float:
    """Of the two products whose signs move C and rho; 1 where there are none."""
    if "gradient" not in past or "gradient" not in state.buffers:
        return 1.0
    gradient = state.buffers["gradient"]
    cosines = [torch.cosine_similarity(gradient, past[key], eps=0.0).abs() for key in past]
    return float(torch.stack(cosines).min())


def follow(
    name: str, mode: str, momentum: float, arrays: Arrays
) -> list[tuple[float, float, float, float]]:
    """Of each step, relative differences of theta, C and rho, and `smallest_cosine`."""
    task = StudyTask(
        method=study_method(name, momentum),
        model="small_cnn",
        metric="accuracy",
        noise_multiplier=1.0,
        batch_size=BATCH,
        steps=STEPS,
        evaluate_every=STEPS,
    )
    training = study_training(task, [RUN], arrays)
    examples = training.problem.examples
    inputs, targets = examples.inputs.to(torch.get_default_dtype()), examples.targets
    training.problem.examples = TensorExamples(inputs, targets)

    def normals(query: str, size: int) -> Tensor:
        step = training.state.step
        (asked,) = [q for q in task.method.queries(training.state) if q.name == query]
        purpose = f"noise/{query}/{asked.noise_multiplier:.7g}"
        numbers = seeded_normals([RUN.run_id], purpose, step, (size,) if size > 1 else ())
        return torch.from_numpy(numbers).flatten()

    model = build_model("small_cnn")
    torch.nn.utils.vector_to_parameters(training.state.parameters[0].clone(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=RHO, momentum=momentum)
    method = {"quantile": QUANTILE} if name == "fixed_quantile" else {}
    made = make(
        name,
        mode,
        model,
        loader_of(inputs, targets, batch_size=BATCH),
        optimizer,
        Loss(),
        noise=Recorded(normals),
        max_grad_norm=THRESHOLD,
        **method,
    )
    differences = []
    for step in range(1, STEPS + 1):
        drawn, present = training.mechanism.random_numbers.batches([RUN.run_id], step)
        batch = drawn[0][present[0]]
        training.state.step = step  # whose noise the Opacus step is to have
        made.step(inputs[batch], targets[batch])
        training.state.step = step - 1
        past = dict(training.state.buffers)
        training.take_step()
        state = training.state
        here = parameters_of(made.optimizer)
        differences.append(
            (
                float((here - state.parameters[0]).norm() / state.parameters[0].norm()),
                abs(made.optimizer.max_grad_norm / float(state.threshold) - 1),
                abs(RHO * made.optimizer.learning_rate_factor / float(state.learning_rate) - 1),
                smallest_cosine(state, past),
            )
        )
    return differences


@pytest.mark.parametrize(
    ("name", "mode", "momentum"),
    [
        ("online", "hooks", 0.9),
        ("online", "ghost", 0.9),
        ("fixed_quantile", "hooks", 0.9),
    ],
)
def test_optimizer_float64_steps_match_study(name, mode, momentum, arrays, in_float64) -> None:
    differences = torch.tensor(follow(name, mode, momentum, arrays))[:, :3]
    assert differences.shape == (STEPS, 3)
    assert differences.max() < 1e-9


def test_optimizer_float32_matches_until_cosine_vanishes(arrays) -> None:
    """From there on a sign may be another in each, and C and rho another by a factor."""
    steps = torch.tensor(follow("online", "functorch", 0.9, arrays))
    near = (steps[:, 3] < 1e-5).nonzero()
    agreed = int(near[0]) if len(near) else STEPS
    assert agreed >= 10
    assert steps[:agreed, 0].max() < 1e-4
    assert steps[:agreed, 1:3].max() < 1e-5


def test_optimizer_auto_s_matches_study(arrays, in_float64, monkeypatch) -> None:
    """Its study has C = 1; here max_grad_norm scales a step, as its users expect of Opacus."""
    monkeypatch.setattr("tests.opacus.test_study_equivalence.THRESHOLD", 1.0)
    monkeypatch.setattr("tests.opacus.test_study_equivalence.RUN", Run("a", 0, RHO, 1.0, None))
    assert torch.tensor(follow("auto_s", "ghost", 0.9, arrays))[:, :3].max() < 1e-9
