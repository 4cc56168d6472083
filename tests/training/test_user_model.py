"""What a loss adds past the model's outputs would be left out: refused in one line."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp import OsoError, search_private, train_private
from oso_dp.gradients import PRECISIONS
from oso_dp.training.task import TensorExamples
from oso_dp.training.user_model import UserModel, check_loss

OUTPUTS, TARGETS = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
MODEL = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
SCALE = torch.ones((), requires_grad=True)


def entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def with_norm(outputs: Tensor, targets: Tensor) -> Tensor:
    penalty = sum(p.pow(2).sum() for p in MODEL.parameters())
    return entropy(outputs, targets) + 0.1 * penalty


def with_one_weight(outputs: Tensor, targets: Tensor) -> Tensor:
    return entropy(outputs, targets) + MODEL[2].weight.abs().mean()


def with_another_pass(outputs: Tensor, targets: Tensor) -> Tensor:
    return entropy(outputs + MODEL(torch.ones(1, 4)), targets)


def with_a_scale(outputs: Tensor, targets: Tensor) -> Tensor:
    return SCALE * entropy(outputs, targets)


class Penalised(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return entropy(outputs, targets) + self.model[0].weight.norm()


class Centres(nn.Module):
    """A loss with points of its own, one per class."""

    def __init__(self, trained: bool, moves: str = "") -> None:
        super().__init__()
        self.centres, self.moves, self.calls = nn.Parameter(torch.zeros(2, 2), trained), moves, []
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.moves == "parameter":
            self.centres.data[targets] += 0.1 * outputs.detach()
        elif self.moves == "buffer":
            self.seen += outputs.detach().sum()
        elif self.moves == "attribute":
            self.calls.append(outputs.detach())
        return (outputs - self.centres[targets]).pow(2).sum(dim=1)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (with_norm, r"loss: depends on the model's parameter '2\.bias' not only through"),
        (with_one_weight, r"loss: depends on the model's parameter '2\.weight' not only through"),
        (with_another_pass, "loss: depends on the model's parameter "),
        (Penalised(MODEL), r"loss: depends on the model's parameter '0\.weight' not only through"),
        (with_a_scale, r"loss: depends on a tensor of shape \[\] that requires a gradient"),
        (Centres(trained=True), "loss: parameter 'centres' requires a gradient"),
        (Penalised(nn.Sequential(nn.Linear(4, 3))), r"loss: parameter 'model\.0\.weight' req"),
        (Centres(False, "parameter"), "loss: its forward pass changes parameter 'centres'"),
        (Centres(False, "buffer"), "loss: its forward pass changes buffer 'seen'"),
        (Centres(False, "attribute"), "loss: its forward pass changes attribute 'calls'"),
    ],
)
def test_check_loss_beyond_outputs_raises(loss, said: str) -> None:
    with pytest.raises(OsoError, match=f"^{said}") as error:
        check_loss(loss, MODEL, OUTPUTS, TARGETS)
    assert "\n" not in str(error.value)


def with_gradient_of_outputs(outputs: Tensor, targets: Tensor) -> Tensor:
    """Made anew at each call."""
    noise = torch.zeros_like(outputs).requires_grad_(True)
    return entropy(outputs + noise, targets)


def with_constant_weights(outputs: Tensor, targets: Tensor) -> Tensor:
    return entropy(outputs, targets) * MODEL[2].weight.detach().norm()


@pytest.mark.parametrize(
    "loss",
    [
        *(entropy, with_gradient_of_outputs, with_constant_weights, Centres(trained=False)),
        nn.CrossEntropyLoss(weight=torch.ones(2), reduction="none"),
    ],
)
def test_check_loss_of_outputs_accepted(loss) -> None:
    check_loss(loss, MODEL, OUTPUTS, TARGETS)


def test_train_private_weight_penalty_raises() -> None:
    given = MODEL, with_norm, (torch.randn(9, 4), torch.zeros(9, dtype=torch.int64))
    with pytest.raises(OsoError, match="depends on the model's parameter"):
        train_private(*given, epsilon=3, delta=1e-5, progress=False)
    grid = {"learning_rate": [0.1, 1.0]}
    with pytest.raises(OsoError, match="depends on the model's parameter"):
        search_private(*given, grid, epsilon=3, delta=1e-5, score=lambda model: 0.0, progress=False)


CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(2,), (2, 5)])
def test_make_engine_multidimensional_loss_averaged(shape: tuple[int, ...]) -> None:
    targets = torch.randn(6, *shape)
    model = nn.Sequential(nn.Linear(4, targets[0].numel()), nn.Unflatten(1, shape))
    examples = TensorExamples(torch.randn(6, 4), targets)
    own = UserModel(model)
    engine = own.make_engine(nn.MSELoss(reduction="none"), examples, PRECISIONS["float32"], CPU)
    outputs = model(examples.inputs)
    right = (outputs - targets).square().flatten(1).mean(dim=1)
    torch.testing.assert_close(engine.loss(outputs, targets), right)


def test_make_engine_broadcast_loss_raises() -> None:
    """Outputs [n, 1] and targets [n] broadcast to [n, n], so each loss would mix all targets."""
    examples = TensorExamples(torch.randn(6, 4), torch.randn(6))
    own = UserModel(nn.Linear(4, 1))
    with pytest.raises(OsoError, match="each with each; give targets the shape"):
        own.make_engine(lambda x, y: (x - y) ** 2, examples, PRECISIONS["float32"], CPU)


def each_threshold(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss for each of three levels, of one output and one target."""
    levels = torch.arange(3)
    above = (targets[:, None] > levels).float()
    return nn.functional.binary_cross_entropy_with_logits(outputs - levels, above, reduction="none")


def test_make_engine_loss_as_wide_as_trial_accepted() -> None:
    """Three losses for each of the three examples that are tried are not each with each."""
    examples = TensorExamples(torch.randn(6, 4), torch.randint(4, (6,)))
    own = UserModel(nn.Linear(4, 1))
    engine = own.make_engine(each_threshold, examples, PRECISIONS["float32"], CPU)
    outputs = torch.randn(6, 1)
    right = each_threshold(outputs, examples.targets).mean(dim=1)
    torch.testing.assert_close(engine.loss(outputs, examples.targets), right)
