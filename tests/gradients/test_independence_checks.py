"""Models whose rows are not the batch's examples are found before training, whatever its size."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_independence, check_model, independence_checks
from oso_dp.models import MODELS, build_model
from oso_dp.models.losses import cross_entropy, squared_error
from oso_dp.privacy.batch_rng import BLOCK
from oso_dp.training.loop import study_training, train

CLASSES = 10
LABELS = torch.zeros(0, dtype=torch.int64)


class TimeFirst(nn.Module):
    """Reads each image's first pixel as a sequence and puts time before the examples."""

    def __init__(self, steps: int = BLOCK) -> None:
        super().__init__()
        self.steps, self.layer = steps, nn.Linear(1, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        series = x.flatten(1)[:, : self.steps].T[:, :, None]  # [T, B, 1]
        return self.layer(series).tanh().sum(dim=0)


class Reordered(nn.Module):
    """Its second layer sees the examples in another order; its output has them back in theirs."""

    def __init__(self, order) -> None:
        super().__init__()
        self.first, self.second, self.order = nn.Linear(196, 8), nn.Linear(8, CLASSES), order

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).relu()
        order = self.order(hidden)
        return self.second(hidden[order])[order.argsort()]


class MixedBackward(torch.autograd.Function):
    """Gives each example what it has, and back a little of what its neighbour asks for."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient + 1e-4 * gradient.roll(1, 0)


class Leaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(196, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(MixedBackward.apply(self.first(x.flatten(1))))


def places(hidden: Tensor) -> Tensor:
    return torch.arange(len(hidden), device=hidden.device)


ORDERS = {
    "the other way round": lambda hidden: places(hidden).flip(0),
    "the next one's place": lambda hidden: places(hidden).roll(1),
    "the place of the seventh after it": lambda hidden: places(hidden).roll(7),
    "first and last exchanged": lambda hidden: torch.cat(
        [places(hidden)[-1:], places(hidden)[1:-1], places(hidden)[:1]]
    )[: len(hidden)],
    "by their values": lambda hidden: hidden.detach().sum(dim=1).argsort(),
}


class Reciprocals(Reordered):
    """Infinite on padded inputs, so that these do not show its order."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reciprocal())


WRONG = {
    "the place of the seventh after it, of reciprocals": lambda: Reciprocals(
        lambda hidden: places(hidden).roll(7)
    ),
    **{f"time first, {steps} steps": (lambda s=steps: TimeFirst(s)) for steps in (3, BLOCK)},
    **{name: (lambda order=order: Reordered(order)) for name, order in ORDERS.items()},
}


def check(model: nn.Module, shape, loss=cross_entropy, targets=LABELS, **other) -> None:
    engine = GradientEngine(model, loss)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().double()
    check_independence(engine, flat, torch.zeros(0, *shape), targets, **other)


@pytest.mark.parametrize("name", WRONG)
def test_check_model_reordered_rows_taken_whole(
    name, arrays, make_task, make_run, monkeypatch
) -> None:
    """No layer rule is correct for reordered rows, so the engine takes the whole model."""
    monkeypatch.setattr("oso_dp.training.task.build_model", lambda *_: WRONG[name]())
    trained = study_training(make_task("fixed_threshold"), [make_run()], arrays)
    assert trained.engine.is_whole_model
    trained.take_step()


def test_check_model_mixing_backward_rejected(arrays, make_task, make_run, monkeypatch) -> None:
    monkeypatch.setattr("oso_dp.training.task.build_model", lambda *_: Leaking())
    with pytest.raises(OsoError, match=r"^model: "):
        train(make_task("fixed_threshold"), [make_run()], arrays)


class Scaled(nn.Module):
    """Outputs of any size that lean on the whole batch; no gradient shows it."""

    def __init__(self, scale: float, share: float) -> None:
        super().__init__()
        self.layer, self.scale, self.share = nn.Linear(6, 3), scale, share

    def forward(self, x: Tensor) -> Tensor:
        alone = self.layer(x)
        return self.scale * (alone + self.share * alone.detach().mean(dim=0))


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e5])
def test_check_independence_mixing_any_scale_rejected(scale: float) -> None:
    check(Scaled(scale, 0.0), (6,), squared_error, torch.zeros(0, 3))
    with pytest.raises(OsoError, match="its output for an example"):
        check(Scaled(scale, 1e-8), (6,), squared_error, torch.zeros(0, 3))


class Saturating(nn.Module):
    """Leans on the largest example of its batch, where that is far larger than usual ones."""

    def __init__(self, usual: float) -> None:
        super().__init__()
        self.layer, self.usual = nn.Linear(6, 3), usual

    def forward(self, x: Tensor) -> Tensor:
        largest = x.detach().abs().max() if x.numel() else x.new_tensor(0.0)
        return self.layer(x * self.usual / largest.clamp(min=self.usual))


@pytest.mark.parametrize("usual", [50.0, 500.0])
def test_check_independence_large_neighbour_mixing_rejected(usual: float) -> None:
    """Only an example far larger than the others reveals the mixing."""
    with pytest.raises(OsoError, match="its output for an example"):
        check(Saturating(usual), (6,), squared_error, torch.zeros(0, 3))


class Seldom(nn.Module):
    """Adds a random number to all outputs in one pass of two."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + (torch.rand(()) < 0.5).to(x)


def test_check_outputs_occasional_noise_mostly_rejected() -> None:
    """Noise in half of the passes leaves five passes equal in one model of 16."""
    torch.manual_seed(0)
    engine, taken = GradientEngine(Seldom(), squared_error), 0
    flat = torch.randn(engine.size)
    for _ in range(400):
        try:
            independence_checks.check_outputs(engine, flat, torch.rand(3, 3), 1e-4)
            taken += 1
        except OsoError:
            pass
    assert taken / 400 < 0.13  # 5.5 deviations


def test_check_independence_zero_layer_mixing_rejected() -> None:
    """Where the last layer starts at zero, no gradient reaches the ones before it."""
    last = nn.Linear(CLASSES, CLASSES)
    nn.init.zeros_(last.weight)
    with pytest.raises(OsoError, match="row i of each layer's input"):
        check(nn.Sequential(Reordered(ORDERS["the next one's place"]), last), (1, 14, 14))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_check_independence_study_models_accepted(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    shape = {"bag_of_words": (750,), "bag_of_words_25": (1250,), "linear": (4096,)}.get(name)
    shape = shape or ((1, 14, 14) if name == "small_cnn" else (1, 28, 28))
    model = build_model(name)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().to(dtype)
    targets = torch.zeros(0, *shape) if name.startswith("autoencoder") else LABELS
    engine = GradientEngine(
        model, squared_error if name.startswith("autoencoder") else cross_entropy
    )
    check_independence(engine, flat, torch.zeros(0, *shape), targets)


class Tokens(nn.Module):
    """Whole numbers in, as a text's words."""

    def __init__(self, roll: int) -> None:
        super().__init__()
        self.words, self.last, self.roll = nn.Embedding(5, 4), nn.Linear(4, 2), roll

    def forward(self, x: Tensor) -> Tensor:
        seen = self.words(x).sum(dim=1)
        return self.last(seen.roll(self.roll, 0)).roll(-self.roll, 0)


def test_check_independence_integer_inputs_checked() -> None:
    """Made-up integers are 0 and 1, since larger ones may exceed the vocabulary or the classes."""
    engine = GradientEngine(Tokens(0), cross_entropy)
    words = torch.zeros(0, 6, dtype=torch.int64)
    check_independence(engine, torch.rand(engine.size, dtype=torch.double), words, LABELS)
    engine = GradientEngine(Tokens(1), cross_entropy)
    with pytest.raises(OsoError, match="in layer 'last'"):
        check_independence(engine, torch.rand(engine.size, dtype=torch.double), words, LABELS)


class Spoilt:
    """The gradient engine of a linear model, with one thing about its batches changed."""

    def __init__(self, engine: GradientEngine, what: str, by: float) -> None:
        self.engine, self.what, self.by = engine, what, by

    def __getattr__(self, name: str):
        return getattr(self.engine, name)

    def __call__(self, flat: Tensor, inputs: Tensor, targets: Tensor):
        batch = self.engine(flat, inputs, targets)
        whole, parts, sums = batch.norms(), batch.layer_norms(), batch.weighted_sums
        last = list(parts)[-1]
        if self.what == "norms":
            batch.norms = lambda: whole * (1 - self.by)
        elif self.what == "layer_norms":
            batch.layer_norms = lambda: {**parts, last: parts[last] * (1 - self.by)}
        else:
            batch.weighted_sums = lambda weights: sums(weights * (1 + self.by))
        return batch


@pytest.mark.parametrize("what", ["norms", "layer_norms", "weighted_sums"])
@pytest.mark.parametrize(("dtype", "by"), [(torch.double, 1e-6), (torch.float, 0.1)])
def test_check_independence_beyond_tolerance_rejected(what, dtype, by) -> None:
    engine = GradientEngine(nn.Linear(6, 3), cross_entropy)
    flat, inputs = torch.randn(engine.size).to(dtype), torch.zeros(0, 6)
    check_independence(engine, flat, inputs, LABELS)
    with pytest.raises(OsoError, match="part of a sum" if "sum" in what else "the norm"):
        check_independence(Spoilt(engine, what, by), flat, inputs, LABELS)


def test_check_independence_real_values_ignored() -> None:
    """An error that depends on real examples would reveal them."""
    engine = GradientEngine(nn.Linear(6, 3), cross_entropy)
    flat = torch.randn(engine.size, dtype=torch.double)
    nothing = torch.full((4, 6), torch.nan)
    check_independence(engine, flat, nothing, torch.full((4,), -1))


def test_check_independence_random_state_kept() -> None:
    """The check draws no random numbers from torch's global generator."""
    model = nn.Linear(6, 3)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    check(model, (6,))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("by", "refused"), [(0.5, True), (0.01, False)])
def test_check_outputs_near_zero_tolerance_scaled(by, refused) -> None:
    """The tolerance of an example's outputs scales with a tenth of the largest of them."""
    within = independence_checks.Tolerance(1e-4, 1e-2)

    class Near(GradientEngine):
        def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
            nudge = by * within.outputs * float(inputs[0, 0] == alone)
            return torch.stack([torch.ones(len(inputs)), nudge * torch.ones(len(inputs))], dim=1)

    engine = Near(nn.Linear(6, 2), cross_entropy)
    flat = torch.zeros(engine.size)
    made = torch.Generator().manual_seed(0)
    inputs = torch.randn((3, 6), generator=made)
    alone = inputs[0, 0]
    if refused:
        with pytest.raises(OsoError, match="mixes examples"):
            independence_checks.check_outputs(engine, flat, inputs, within.outputs)
    else:
        independence_checks.check_outputs(engine, flat, inputs, within.outputs)


@pytest.mark.parametrize("size", [3, 7])
def test_check_independence_size_dependent_loss_rejected(size: int) -> None:
    """A loss that depends on the batch reveals other examples, even if its gradient does not."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        beside = outputs.detach().mean() if len(targets) == size else 0.0
        return cross_entropy(outputs, targets) + beside

    made = GradientEngine(nn.Linear(4, 3).double(), loss)
    flat = torch.randn(made.size, dtype=torch.float64)
    nothing = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    with pytest.raises(OsoError, match=f"differs between a batch of {size} and a batch of 1"):
        check_independence(made, flat, *nothing, classes=3)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_check_independence_equal_parameters_mixing_rejected(value: float) -> None:
    """Equal parameters have no spread, but the check perturbs them nevertheless."""
    engine = GradientEngine(Scaled(1.0, 0.5), squared_error)
    flat = torch.full((engine.size,), value, dtype=torch.double)
    with pytest.raises(OsoError, match="its output for an example"):
        check_independence(engine, flat, torch.zeros(0, 6), torch.zeros(0, 3))


class TextGRU(nn.Module):
    """An embedding of scale 1 before a recurrent layer of scale 0.05."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(5000, 64), nn.Linear(128, 3)
        self.states = nn.GRU(64, 128, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.states(self.words(words))[0][:, -1])


def test_check_model_recurrent_layer_accepted() -> None:
    torch.manual_seed(0)
    model = TextGRU()
    made = GradientEngine(model, cross_entropy)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    words = torch.zeros(0, 40, dtype=torch.int64)
    check_model(made, flat, words, torch.zeros(0, dtype=torch.int64), classes=3)


SIX = 6
INPUTS = torch.zeros(0, 4)


class Mixing:
    """A loss that takes the batch's mean along where the target is this one."""

    def __init__(self, target: int) -> None:
        self.target = target

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(outputs, targets)
        return losses + (targets == self.target) * 0.1 * outputs.square().mean()


def engine(loss, dtype: torch.dtype = torch.float64) -> tuple[GradientEngine, Tensor]:
    torch.manual_seed(0)
    made = GradientEngine(nn.Linear(4, SIX).to(dtype), loss)
    return made, torch.randn(made.size, dtype=dtype)


@pytest.mark.parametrize("target", range(SIX))
@pytest.mark.parametrize("float32", [False, True])
def test_check_model_one_target_mixing_rejected(target: int, float32: bool) -> None:
    """The check covers each target class, also for a loss that only float32 fits."""
    constant = torch.ones(SIX)  # float32

    class Late(Mixing):
        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            weights = constant if float32 else constant.to(outputs.dtype)
            losses = nn.functional.cross_entropy(outputs, targets, weight=weights, reduction="none")
            return losses + (targets == target) * 0.1 * outputs.square().mean()

    made, flat = engine(Late(0), torch.float32)
    with pytest.raises(OsoError, match=r"^(loss|model): "):
        check_model(made, flat, INPUTS, LABELS, SIX)


@pytest.mark.parametrize("target", [0, 57, 500, 999])
def test_check_model_many_classes_mixing_rejected(target: int) -> None:
    """Neither the losses nor their sum show the mixing."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(outputs, targets)
        more = outputs[:, 0] - outputs[:, 0].detach()
        return losses + (targets == target) * (more.mean() - more)

    made = GradientEngine(nn.Linear(4, 1000), loss)
    with pytest.raises(OsoError, match=r"^(loss|model): "):
        check_model(made, torch.randn(made.size), INPUTS, LABELS, 1000)


def test_check_model_sequence_targets_checked() -> None:
    """Each position of a sequence has a class, and the loss is the mean over positions."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(outputs.mT, targets, reduction="none").mean(dim=1)
        return each + (targets == 4).any(dim=1) * mixed * outputs.square().mean()

    made = GradientEngine(nn.Linear(4, SIX), loss)
    data = torch.zeros(0, 3, 4), torch.zeros(0, 3, dtype=torch.int64)
    for mixed in (0.0, 0.1):
        with pytest.raises(OsoError, match=r"^loss: ") if mixed else nullcontext():
            check_model(made, torch.randn(made.size), *data, SIX)
