"""Models and losses that are float32 and nothing else are tried in it, and still may not mix."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_model, independence_checks
from oso_dp.models.losses import cross_entropy

LABELS = torch.zeros(0, dtype=torch.int64)
WEIGHT = torch.tensor([1.0, 2.0, 0.5])


def check(model: nn.Module, loss=cross_entropy, shape=(6,), whole: bool = False) -> GradientEngine:
    torch.manual_seed(1)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    inputs = torch.zeros(0, *shape, dtype=torch.int64 if whole else torch.float32)
    engine = GradientEngine(model, loss)
    check_model(engine, flat, inputs, LABELS, 3)
    return engine


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, weight=WEIGHT, reduction="none")


class Float(nn.Module):
    """Its forward pass is in float32 from the first line."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.float())


class Hot(Float):
    def forward(self, x: Tensor) -> Tensor:
        return self.layers(F.one_hot(x, 5).float().flatten(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        zeros = torch.zeros(1, len(x), 4)
        return self.last(self.lstm(x.view(-1, 2, 3), (zeros, zeros))[0][:, -1])


class ByFloats(nn.Module):
    """Products of float32 factors, whatever its parameters are."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x).float()


def deep(layers: int, unit) -> list[nn.Module]:
    widths = [6, *[32] * (layers - 1), 3]
    made: list[nn.Module] = []
    for place in range(layers):
        made += [nn.Linear(widths[place], widths[place + 1]), unit()]
    return made[:-1]


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(weight=WEIGHT, reduction="none")),
        (lambda: nn.Linear(6, 3), weighted),
        (lambda: Float(nn.Linear(6, 3)), cross_entropy),
        (Recurrent, cross_entropy),
        (ByFloats, cross_entropy),
        (lambda: nn.Linear(6, 3), lambda outputs, y: cross_entropy(outputs.float(), y)),
    ],
)
def test_check_model_float32_only_accepted(model, loss) -> None:
    for seed in range(2):
        torch.manual_seed(seed)
        check(model(), loss)


def test_check_model_one_hot_accepted() -> None:
    check(Hot(nn.Linear(20, 3)), shape=(4,), whole=True)


@pytest.mark.parametrize("unit", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("layers", [1, 3, 10])
def test_check_model_rounding_within_narrow_tolerance(layers, unit, monkeypatch) -> None:
    """Five networks pass a tenth of the narrow tolerance in a single draw."""
    tenth = independence_checks.Tolerance(*(part / 10 for part in independence_checks.NARROW))
    monkeypatch.setattr(independence_checks, "NARROW", tenth)
    monkeypatch.setattr(independence_checks, "DRAWS", 1)
    for seed in range(5):
        torch.manual_seed(seed)
        check(Float(*deep(layers, unit)))


class Normalised(nn.Module):
    """By a float32 mean, as T5 and DeBERTa, whose rounding depends on the batch's size."""

    def forward(self, x: Tensor) -> Tensor:
        squares = x.float().square()
        backward = squares.flip(1).cumsum(1)[:, -1] / x.shape[1]
        mean = squares.mean(1) if len(x) == 1 else backward
        return x * (mean + 1e-3).rsqrt().to(x)[:, None]


def test_check_model_float32_inside_accepted(monkeypatch) -> None:
    made = deep(3, nn.Tanh)
    check(nn.Sequential(*made[:2], Normalised(), *made[2:]))
    with pytest.raises(OsoError, match=r"^model: "):
        check(nn.Sequential(*made[:2], Normalised(), Mixing(1e-3, shown=False), *made[2:]))
    monkeypatch.setattr(independence_checks, "_check_rounded", pytest.fail)
    check(nn.Sequential(*made))
    with pytest.raises(OsoError, match=r"^model: "):  # nothing of it is in float32
        check(nn.Sequential(*made[:2], Mixing(1e-7, shown=False), *made[2:]))


class Mixing(nn.Module):
    """Takes a share of its neighbour along: forward, or in the backward pass alone."""

    def __init__(self, share: float, shown: bool) -> None:
        super().__init__()
        self.share, self.shown = share, shown

    def forward(self, x: Tensor) -> Tensor:
        other = self.share * x.roll(1, 0)
        return x + other if self.shown else Backward.apply(x, self.share)


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, share: float) -> Tensor:
        ctx.share = share
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return gradient + ctx.share * gradient.roll(1, 0), None


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("share", [1.0, 1e-3])
@pytest.mark.parametrize("layers", [1, 10])
def test_check_model_float32_mixing_rejected(layers, share, shown) -> None:
    """The smaller share is a tenth of the tolerance for one draw."""
    made = deep(layers, nn.Tanh)
    with pytest.raises(OsoError, match=r"^model: "):
        check(Float(*made[:1], Mixing(share, shown), *made[1:], nn.Linear(3, 3)))


class Sorted(nn.Module):
    """Its last layer sees the examples in the order of their values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.float()).tanh()
        order = hidden.detach().sum(dim=1).argsort()
        return self.last(hidden[order])[order.argsort()]


def test_check_model_float32_reordering_taken_whole() -> None:
    assert check(Sorted()).is_whole_model


@pytest.mark.parametrize(
    "mixing",
    [
        lambda losses: losses - losses.detach().min(),
        lambda losses: losses + 1e-3 * losses.mean(),
    ],
)
def test_check_model_float32_loss_mixing_rejected(mixing) -> None:
    with pytest.raises(OsoError, match="loss: an example's loss differs between a batch of 7"):
        check(nn.Linear(6, 3), lambda outputs, targets: mixing(weighted(outputs, targets)))


def test_check_model_module_loss_mixing_rejected() -> None:
    """The check converts a loss module to float64, where it detects mixing of 1e-6."""

    class Leaning(nn.CrossEntropyLoss):
        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            losses = super().forward(outputs, targets)
            return losses + 1e-6 * losses.mean()

    loss = Leaning(weight=WEIGHT, reduction="none")
    with pytest.raises(OsoError, match="loss: an example's loss differs"):
        check(nn.Linear(6, 3), loss)
    assert loss.weight.dtype is torch.float32


def test_check_model_failing_loss_rejected() -> None:
    with pytest.raises(OsoError, match="model, loss: fail on made-up examples: element 0") as error:
        check(nn.Linear(6, 3), lambda outputs, y: cross_entropy(outputs, y).detach())
    assert "\n" not in str(error.value)


def test_check_model_nan_loss_rejected() -> None:
    with pytest.raises(OsoError, match="loss: NaN or infinite"):
        check(nn.Linear(6, 3), lambda outputs, y: cross_entropy(outputs, y) * torch.nan)


def test_check_model_failed_draw_rejected(monkeypatch) -> None:
    """A model that fails only the last draw is rejected."""

    def in_the_last_one(*asked) -> None:
        if asked[4] != independence_checks.NARROW and asked[6] == independence_checks.DRAWS - 1:
            raise OsoError("model: mixes")

    monkeypatch.setattr(independence_checks, "check_independence", in_the_last_one)
    with pytest.raises(OsoError, match="model: mixes"):
        check(nn.Linear(6, 3), weighted)


def test_check_model_draws_differ() -> None:
    """Each draw has new examples, so that a kink or a missed mixture does not affect all draws."""
    seen = set()

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.dtype == torch.float32 and x.any():
                seen.add(float(x.flatten()[0]))
            return self.last(x)

    check(Looking(), weighted)
    assert len(seen) > 2 * 7  # of three draws of seven examples; one draw gives 8 first numbers
