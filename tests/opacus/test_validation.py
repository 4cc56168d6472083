"""Wrong combinations: one line that names what is allowed, and nothing was trained."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus import GradSampleModule
from opacus.schedulers import ExponentialGradClip
from tests.opacus.helpers import ENGINES, MODES, QUIET, examples, loader_of, make, network
from tests.opacus.test_model_checks import Arrays, Mixing
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from oso_dp.errors import OsoError
from oso_dp.opacus import OnlinePrivacyEngine, privacy_engine, validation
from oso_dp.opacus.per_sample_gradients import Dense, LinearFactors

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

DATA = TensorDataset(*examples())


class Endless(IterableDataset):
    def __iter__(self):
        return iter(DATA)


def with_batches(**arguments: Any) -> DataLoader:
    return DataLoader(DATA, **arguments)


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "mode unknown": ({"mode": "no_op"}, "grad_sample_mode: 'no_op'.*hooks, functorch, ghost"),
    "mode fully sharded": ({"mode": "ghost_fsdp"}, "grad_sample_mode: 'ghost_fsdp'"),
    "expanded weights": ({"mode": "ew"}, "grad_sample_mode: 'ew'"),
    "per layer": ({"clipping": "per_layer"}, "clipping: 'per_layer'"),
    "opacus's adaptive": ({"clipping": "adaptive"}, "clipping: 'adaptive'"),
    "reduction": ({"loss_reduction": "none"}, "loss_reduction: 'none'.*mean, sum"),
    "no sampling": ({"poisson_sampling": False}, "poisson_sampling: False"),
    "invented example": ({"rand_on_empty": True}, "rand_on_empty: True"),
    "a seed for a generator": (
        {"noise_generator": 7},
        "noise_generator: 7; must be a torch.Generator",
    ),
    "thresholds": ({"max_grad_norm": [1.0, 2.0]}, "max_grad_norm: \\[1.0, 2.0\\]"),
    "zero threshold": ({"max_grad_norm": 0.0}, "max_grad_norm: 0.0; must be a number > 0"),
    "endless threshold": ({"max_grad_norm": float("inf")}, "max_grad_norm: inf"),
    "no noise": ({"noise_multiplier": 0.0}, "noise_multiplier: 0.0"),
    "hardly any noise": ({"noise_multiplier": 1e-300}, "noise_multiplier: 1e-300; .*>= 1e-20"),
    "endless noise": ({"noise_multiplier": 1e300}, "noise_multiplier: 1e\\+300; .*<= 1e\\+20"),
    "noise a text": ({"noise_multiplier": "1"}, "noise_multiplier: '1'"),
    "unknown": ({"target_unclipped_quantile": 0.5}, "argument 'target_unclipped_quantile'; .*rate"),
    "C_0 twice": ({"initial_threshold": 0.5}, "unknown argument 'initial_threshold'"),
    "ratio": ({"query_noise_ratio": 1.0}, "query_noise_ratio: 1.0; must be a number > 1"),
    "rate": ({"threshold_rate": -0.1}, "threshold_rate: -0.1; must be a number >= 0"),
    "rate is true": ({"threshold_rate": True}, "threshold_rate: True"),
    "quantile of online": ({"quantile": 0.5}, "unknown argument 'quantile'"),
    "quantile": (
        {"method": "fixed_quantile", "quantile": 1.0},
        "quantile: 1.0; .*> 0 and < 1",
    ),
    "count": (
        {"method": "fixed_quantile", "count_noise": 1e-3},
        "query_noise_multiplier: 0.024; must",
    ),
    "stabiliser": ({"method": "auto_s", "stabiliser": 0.0}, "stabiliser: 0.0; .*>= 1e-06"),
    "endless": ({"loader": DataLoader(Endless(), batch_size=4)}, "data_loader: IterableDataset"),
    "no batches": (
        {"loader": with_batches(batch_size=None)},
        "data_loader: must have a batch size",
    ),
    "weighted": (
        {"loader": with_batches(batch_size=4, sampler=WeightedRandomSampler(torch.ones(120), 120))},
        "data_loader: WeightedRandomSampler would be replaced",
    ),
    "replacement": (
        {"loader": with_batches(batch_size=4, sampler=RandomSampler(DATA, replacement=True))},
        "data_loader: RandomSampler would be replaced",
    ),
    "own batches": (
        {
            "loader": with_batches(
                batch_sampler=type("Own", (BatchSampler,), {})(range(120), 4, False)
            )
        },
        "no user-defined batch sampler",
    ),
    "a list": ({"loader": [1, 2]}, "data_loader: list; must be a DataLoader"),
    "empty": (
        {"loader": DataLoader(TensorDataset(torch.zeros(0, 6)), batch_size=4)},
        "data_loader: 0 batches",
    ),
    "criterion sums": (
        {"criterion": nn.CrossEntropyLoss(reduction="sum")},
        "reduction 'sum'; must equal",
    ),
    "criterion averages": (
        {"criterion": nn.CrossEntropyLoss(), "loss_reduction": "sum", "mode": "ghost"},
        "reduction 'mean'; must equal loss_reduction, 'sum'",
    ),
    "criterion weighted": (
        {"criterion": nn.CrossEntropyLoss(weight=torch.ones(3))},
        "a class-weighted mean",
    ),
    "criterion a function": (
        {"criterion": lambda a, b: (a - b).mean(), "mode": "ghost"},
        "criterion: has no attribute reduction",
    ),
    "criterion a text": ({"criterion": "cross entropy"}, "criterion: str; must be callable"),
}


def refused(run: Callable[[], object], message: str) -> None:
    with pytest.raises(OsoError, match=message) as raised:
        run()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_is_refused(name) -> None:
    arguments, message = ARGUMENTS[name]
    model = network()
    before = [p.clone() for p in model.parameters()]

    refused(lambda: make(model=model, **arguments), message)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    make(model=model)  # no hook was left behind


class Folded(nn.Module):
    """Takes each place of a sequence for an example of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs.reshape(-1, 3)).view(len(inputs), -1)


class Reordered(nn.Module):
    """Its layer sees the examples in another order than the batch's."""

    def __init__(self, dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(3, 2)
        self.dropout = nn.Identity() if dropout is None else dropout

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.dropout(self.first(inputs.flip(0)).flip(0)))


def images(model: nn.Module) -> dict[str, Any]:
    return {"model": model, "loader": loader_of(torch.rand(20, 1, 6, 6), torch.zeros(20).long())}


def words(model: nn.Module) -> dict[str, Any]:
    return {"model": model, "loader": loader_of(torch.ones(20, 6).long(), torch.zeros(20).long())}


MODELS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "batch norm": (
        lambda: {"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))},
        r"layer '1' \(BatchNorm1d\): mixes the examples of a batch; use GroupNorm",
    ),
    "batch norm without weights": (
        lambda: {"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, affine=False))},
        r"layer '1' \(BatchNorm1d\): mixes",
    ),
    "running statistics": (
        lambda: images(
            nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.Conv2d(1, 3, 6))
        ),
        "stores statistics",
    ),
    "lstm": (lambda: {"model": nn.LSTM(6, 3)}, "DPLSTM"),
    "renormalised words": (
        lambda: words(
            nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Flatten(), nn.Linear(18, 2))
        ),
        "max_norm changes",
    ),
    "renormalised bags of words": (
        lambda: words(nn.Sequential(nn.EmbeddingBag(5, 3, max_norm=1.0), nn.Linear(3, 2))),
        r"layer '0' \(EmbeddingBag\): max_norm changes",
    ),
    "padding": (
        lambda: images(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"))),
        "padding_mode 'circular'",
    ),
    "evaluating": (lambda: {"model": network().eval()}, "training mode"),
    "wrapped": (lambda: {"model": GradSampleModule(network())}, "already wrapped by Opacus"),
    "places as examples": (lambda: {"model": Folded()}, "see 6 examples in a batch of 3"),
    "another order": (
        lambda: {"model": Reordered()},
        "an example's gradient in a batch differs from",
    ),
    "mixing": (lambda: {"model": Mixing()}, "an example's gradient in a batch differs from"),
    "mixing arrays": (
        lambda: {"model": Mixing(), "loader": DataLoader(Arrays(), batch_size=4)},
        "an example's gradient in a batch differs from",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_refused(name, mode) -> None:
    build, message = MODELS[name]
    if name == "padding" and mode == "functorch":
        make(mode=mode, **build())  # right there
        return
    if name == "wrapped":
        arguments = build()
        inner = arguments["model"]._module
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
        refused(lambda: make(mode=mode, optimizer=optimizer, **arguments), message)
        return
    refused(lambda: make(mode=mode, **build()), message)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.AlphaDropout])
def test_a_model_with_dropout_is_tried_without_it(kind, mode) -> None:
    """As one that draws random numbers, only its outputs would be looked at."""
    model = Reordered(kind(0.5))
    refused(lambda: make(mode=mode, model=model), "an example's gradient in a batch differs from")
    assert model.dropout.training


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [LinearFactors, Dense])
def test_a_norm_that_is_too_short_is_refused(kind, mode, monkeypatch) -> None:
    """Though each sum is right: its clip would let an example through."""
    real = kind.norms
    monkeypatch.setattr(kind, "norms", lambda held: 0.9 * real(held))
    if kind is LinearFactors and mode != "ghost":
        make(mode=mode)  # holds none of these
        return
    refused(lambda: make(mode=mode), "an example's gradient in a batch differs from")


def test_an_optimizer_is_refused() -> None:
    model, other = network(), network()
    sgd = torch.optim.SGD

    def run(optimizer: Any) -> Callable[[], object]:
        return lambda: make(model=model, optimizer=optimizer)

    refused(run(sgd(other.parameters(), lr=0.1)), "has parameters that do not belong to the module")
    both = sgd([*model.parameters(), *other.parameters()], lr=0.1)
    refused(run(both), "has parameters that do not belong to the module")
    refused(run(torch.optim.LBFGS(model.parameters())), "LBFGS; its closures")
    refused(run("sgd"), "str; must be a torch optimizer")
    refused(run(make().optimizer), "already an Opacus optimizer")
    frozen = network().requires_grad_(False)
    refused(
        lambda: make(model=frozen, optimizer=sgd(frozen.parameters(), lr=0.1)),
        "no parameter that requires a gradient",
    )


def test_a_closure_is_refused() -> None:
    made = make()
    made.backward(*examples(count=3))
    refused(lambda: made.optimizer.step(lambda: 0.0), "closure is not supported")
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unscaled", [False, True])
def test_a_scaled_loss_is_refused(unscaled, mode) -> None:
    made = make(mode=mode)
    scaler = torch.amp.GradScaler("cpu")
    inputs, targets = examples(count=3)
    loss = made.criterion(made.model(inputs), targets)
    if mode == "ghost":  # whose loss is no tensor
        with pytest.raises(ValueError, match="outputs must be a Tensor"):
            scaler.scale(loss)
        return
    scaler.scale(loss).backward()
    if unscaled:
        scaler.unscale_(made.optimizer)
    refused(lambda: scaler.step(made.optimizer), "GradScaler: not supported")
    assert made.optimizer.ledger.step_count == 0


def test_freezing_after_make_private_is_refused() -> None:
    made = make()
    made.optimizer.params[0].requires_grad_(False)
    made.backward(*examples(count=3))
    refused(made.optimizer.step, "the trained parameters have changed")


def test_a_scheduler_of_the_threshold_is_refused() -> None:
    refused(
        lambda: ExponentialGradClip(make().optimizer, gamma=0.5),
        "max_grad_norm: cannot be set; the method adapts",
    )


@pytest.mark.parametrize("mode", MODES)
def test_an_engine_that_cannot_be_is_refused(mode) -> None:
    refused(lambda: OnlinePrivacyEngine(accountant="gdp"), "accountant: 'gdp'.*prv, rdp")
    refused(lambda: OnlinePrivacyEngine(accountant=3), "accountant: 3")
    if "torchcsprng" not in sys.modules:
        refused(lambda: OnlinePrivacyEngine(secure_mode=True), "needs the package torchcsprng")


def test_a_seed_under_secure_mode_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = ENGINES["online"]()
    engine.secure_mode = True
    model = network()

    def run() -> object:
        return engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=loader_of(*examples()),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            noise_generator=torch.Generator(),
        )

    refused(run, "noise_generator: must be None with secure_mode")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon: 0.0"),
        ({"target_delta": 1.0}, "target_delta: 1.0; must be a number > 0 and < 1"),
        ({"epochs": 0}, "epochs: 0; must be a number >= 1"),
        ({"data_loader": None}, "must be a DataLoader"),
    ],
)
def test_a_budget_is_refused(arguments, message) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = OnlinePrivacyEngine(accountant="rdp")
    model = network()
    usual = {
        "target_epsilon": 1.0,
        "target_delta": 1e-3,
        "epochs": 1,
        "data_loader": loader_of(*examples()),
    }
    refused(
        lambda: engine.make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            max_grad_norm=1.0,
            **{**usual, **arguments},
        ),
        message,
    )


def test_a_budget_that_no_noise_keeps_is_refused(monkeypatch) -> None:
    def too_low(**arguments: Any) -> float:
        raise ValueError("The privacy budget is too low.")

    monkeypatch.setattr(privacy_engine, "get_noise_multiplier", too_low)
    test_a_budget_is_refused({}, "target_epsilon: 1; The privacy budget is too low")


class Averages:
    """Says that it heeds its reduction, and does not."""

    reduction = "mean"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)


class PerPixel(Averages):
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs - targets[:, None]


class TooMany(Averages):
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.flatten()


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (Averages(), r"returned losses of shape \(\)"),
        (PerPixel(), r"returned losses of shape \(4, 3\)"),
        (TooMany(), "returned 12 losses for a batch of 4 examples"),
    ],
)
def test_a_criterion_that_is_no_loss_per_example_is_refused(criterion, message) -> None:
    made = make(mode="ghost", criterion=criterion)
    refused(lambda: made.step(*examples(count=4)), message)
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("kind", ["FSDPModule", "FullyShardedDataParallel"])
def test_a_fully_sharded_model_is_refused(kind, monkeypatch) -> None:
    """Of either of torch's ways: an example's norm would be that of a shard."""

    class Sharded(nn.Sequential):
        pass

    monkeypatch.setattr(validation, kind, Sharded)
    with pytest.raises(OsoError, match="fully sharded"):
        make(model=Sharded(nn.Linear(6, 3)))


def test_parameters_of_several_types_are_refused() -> None:
    model = network()
    model[3].double()
    with pytest.raises(OsoError, match="parameters have types float32 and float64; must have one"):
        make(model=model, loader=loader_of(DATA.tensors[0], DATA.tensors[1]))
