"""What make_private takes, and what it refuses in one line that names what is allowed."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus import GradSampleModule
from opacus.schedulers import ExponentialGradClip
from tests.opacus.helpers import (
    QUIET,
    Recorded,
    examples,
    loader_of,
    make,
    make_engine,
    network,
    refused,
)
from tests.opacus.test_model_checks import MIXES, Arrays, Mixing
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    TensorDataset,
)

from oso_dp.opacus import OnlinePrivacyEngine, validation
from oso_dp.opacus.layer_rules import accumulation_dtype
from oso_dp.opacus.per_sample_gradients import Dense, LinearFactors

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
DATA = TensorDataset(*examples())


class Endless(IterableDataset):
    def __iter__(self):
        return iter(DATA)


def with_batches(**arguments: Any) -> DataLoader:
    return DataLoader(DATA, **arguments)


ARGUMENTS = [
    ({"mode": "no_op"}, "grad_sample_mode: 'no_op'.*hooks, functorch, ghost"),
    ({"clipping": "per_layer"}, "clipping: 'per_layer'"),
    ({"loss_reduction": "none"}, "loss_reduction: 'none'.*mean, sum"),
    ({"poisson_sampling": False}, "poisson_sampling: False"),
    ({"rand_on_empty": True}, "rand_on_empty: True"),
    ({"noise_generator": 7}, "noise_generator: 7; must be a torch.Generator"),
    ({"max_grad_norm": [1.0, 2.0]}, "max_grad_norm: \\[1.0, 2.0\\]"),
    ({"max_grad_norm": 0.0}, "max_grad_norm: 0.0; must be a number > 0"),
    ({"noise_multiplier": 1e-300}, "noise_multiplier: 1e-300; .*>= 1e-20"),
    ({"noise_multiplier": 1e300}, "noise_multiplier: 1e\\+300; .*<= 1e\\+20"),
    ({"noise_multiplier": "1"}, "noise_multiplier: '1'"),
    ({"target_unclipped_quantile": 0.5}, "argument 'target_unclipped_quantile'; .*rate"),
    ({"initial_threshold": 0.5}, "unknown argument 'initial_threshold'"),
    ({"query_noise_ratio": 1.0}, "query_noise_ratio: 1.0; must be a number > 1"),
    ({"threshold_rate": -0.1}, "threshold_rate: -0.1; must be a number >= 0"),
    ({"threshold_rate": True}, "threshold_rate: True"),
    ({"method": "fixed_quantile", "quantile": 1.0}, "quantile: 1.0; .*> 0 and < 1"),
    ({"method": "fixed_quantile", "count_noise": 1e-3}, "count_noise: 0.001; must be > 0.04167"),
    ({"method": "auto_s", "stabiliser": 0.0}, "stabiliser: 0.0; .*>= 1e-06"),
    ({"loader": DataLoader(Endless(), batch_size=4)}, "data_loader: IterableDataset"),
    ({"loader": with_batches(batch_size=None)}, "data_loader: must have a batch size"),
    ({"loader": [1, 2]}, "data_loader: list; must be a DataLoader"),
    (
        {"loader": DataLoader(TensorDataset(torch.zeros(0, 6)), batch_size=4)},
        "data_loader: 0 batches",
    ),
    ({"criterion": nn.CrossEntropyLoss(reduction="sum")}, "reduction 'sum'; must equal"),
    (
        {"criterion": nn.CrossEntropyLoss(), "loss_reduction": "sum", "mode": "ghost"},
        "reduction 'mean'; must equal loss_reduction, 'sum'",
    ),
    ({"criterion": nn.CrossEntropyLoss(weight=torch.ones(3))}, "a class-weighted mean"),
    (
        {"criterion": lambda a, b: (a - b).mean(), "mode": "ghost"},
        "criterion: has no attribute reduction",
    ),
    ({"criterion": "cross entropy"}, "criterion: str; must be callable"),
]


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS)
def test_make_private_invalid_argument_rejected(arguments, message) -> None:
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


MODELS = [
    (
        lambda: {"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))},
        r"layer '1' \(BatchNorm1d\): mixes the examples of a batch; use GroupNorm",
    ),
    (
        lambda: {"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, affine=False))},
        r"layer '1' \(BatchNorm1d\): mixes",
    ),
    (
        lambda: images(
            nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.Conv2d(1, 3, 6))
        ),
        "stores statistics",
    ),
    (lambda: {"model": nn.LSTM(6, 3)}, "DPLSTM"),
    (
        lambda: words(
            nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Flatten(), nn.Linear(18, 2))
        ),
        "max_norm changes",
    ),
    (
        lambda: words(nn.Sequential(nn.EmbeddingBag(5, 3, max_norm=1.0), nn.Linear(3, 2))),
        r"layer '0' \(EmbeddingBag\): max_norm changes",
    ),
    (
        lambda: images(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"))),
        "padding_mode 'circular'",
    ),
    (lambda: {"model": network().eval()}, "training mode"),
    (lambda: {"model": GradSampleModule(network())}, "already wrapped by Opacus"),
    (lambda: {"model": Folded()}, "see 6 examples in a batch of 3"),
    (lambda: {"model": Reordered()}, MIXES),
    (lambda: {"model": Mixing()}, MIXES),
    (lambda: {"model": Mixing(), "loader": DataLoader(Arrays(), batch_size=4)}, MIXES),
]


@pytest.mark.parametrize(("build", "message"), MODELS)
def test_make_private_unsupported_module_rejected(build, message, mode) -> None:
    if "padding_mode" in message and mode == "functorch":
        make(mode=mode, **build())  # right there
        return
    if "already wrapped" in message:
        arguments = build()
        inner = arguments["model"]._module
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
        refused(lambda: make(mode=mode, optimizer=optimizer, **arguments), message)
        return
    refused(lambda: make(mode=mode, **build()), message)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.AlphaDropout])
def test_check_independence_mixing_beside_dropout_rejected(kind, mode) -> None:
    """As one that draws random numbers, only its outputs would be looked at."""
    model = Reordered(kind(0.5))
    refused(lambda: make(mode=mode, model=model), MIXES)
    assert model.dropout.training


@pytest.mark.parametrize("kind", [LinearFactors, Dense])
def test_check_independence_short_norm_rejected(kind, mode, monkeypatch) -> None:
    """Though each sum is right: its clip would let an example through."""
    real = kind.norms
    monkeypatch.setattr(kind, "norms", lambda held: 0.9 * real(held))
    if kind is LinearFactors and mode != "ghost":
        make(mode=mode)  # holds none of these
        return
    refused(lambda: make(mode=mode), MIXES)


def test_check_optimizer_unsupported_optimizer_rejected() -> None:
    model, other = network(), network()
    sgd = torch.optim.SGD

    def run(optimizer: Any) -> Callable[[], object]:
        return lambda: make(model=model, optimizer=optimizer)

    refused(run(sgd(other.parameters(), lr=0.1)), "has parameters that do not belong to the module")
    both = sgd([{"params": [*one.parameters()]} for one in (model, other)], lr=0.1)
    refused(run(both), "has parameters that do not belong to the module")
    refused(run(torch.optim.LBFGS(model.parameters())), "LBFGS; its closures")
    refused(run("sgd"), "str; must be a torch optimizer")
    refused(run(make().optimizer), "already an Opacus optimizer")
    frozen = network().requires_grad_(False)
    refused(
        lambda: make(model=frozen, optimizer=sgd(frozen.parameters(), lr=0.1)),
        "no parameter that requires a gradient",
    )


@pytest.mark.parametrize("unscaled", [False, True])
def test_optimizer_scaled_loss_rejected(unscaled, mode) -> None:
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


def test_optimizer_parameter_frozen_later_rejected() -> None:
    made = make()
    made.optimizer.params[0].requires_grad_(False)
    made.backward(*examples(count=3))
    refused(made.optimizer.step, "the trained parameters have changed")


def test_optimizer_threshold_scheduler_rejected() -> None:
    refused(
        lambda: ExponentialGradClip(make().optimizer, gamma=0.5),
        "max_grad_norm: cannot be set; the method adapts",
    )


def test_check_engine_invalid_option_rejected() -> None:
    refused(lambda: OnlinePrivacyEngine(accountant="gdp"), "accountant: 'gdp'.*prv, rdp")
    refused(lambda: OnlinePrivacyEngine(accountant=3), "accountant: 3")
    if "torchcsprng" not in sys.modules:
        refused(lambda: OnlinePrivacyEngine(secure_mode=True), "needs the package torchcsprng")


def test_make_private_secure_mode_generator_rejected() -> None:
    engine, model = make_engine(), network()
    engine.secure_mode = True
    arguments = {"noise_generator": torch.Generator(), "max_grad_norm": 1.0}
    sgd, loader = torch.optim.SGD(model.parameters(), lr=0.1), loader_of(*examples())
    refused(
        lambda: engine.make_private(
            module=model, optimizer=sgd, data_loader=loader, noise_multiplier=1.0, **arguments
        ),
        "noise_generator: must be None with secure_mode",
    )


class Unreduced(nn.Module):
    """Says that it heeds its reduction, and does not."""

    def __init__(self, losses: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.reduction, self.losses = "mean", losses

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses(outputs, targets)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (nn.functional.cross_entropy, r"returned losses of shape \(\)"),
        (lambda outputs, targets: outputs - targets[:, None], r"losses of shape \(4, 3\)"),
        (lambda outputs, targets: outputs.flatten(), "12 losses for a batch of 4 examples"),
    ],
)
def test_ghost_criterion_wrong_loss_shape_rejected(losses, message) -> None:
    made = make(mode="ghost", criterion=Unreduced(losses))
    refused(lambda: made.step(*examples(count=4)), message, made)


@pytest.mark.parametrize("kind", ["FSDPModule", "FullyShardedDataParallel"])
def test_check_module_sharded_model_rejected(kind, monkeypatch) -> None:
    """Of either of torch's ways: an example's norm would be that of a shard."""

    class Sharded(nn.Sequential):
        pass

    monkeypatch.setattr(validation, kind, Sharded)
    refused(lambda: make(model=Sharded(nn.Linear(6, 3))), "fully sharded")


def test_check_optimizer_mixed_dtypes_rejected() -> None:
    model = network()
    model[3].double()
    refused(
        lambda: make(model=model, loader=loader_of(DATA.tensors[0], DATA.tensors[1])),
        "parameters have types float32 and float64; must have one",
    )


GIVEN = {
    "online": {"threshold_rate": 0.03, "learning_rate_rate": 0.07, "query_noise_ratio": 3.0},
    "fixed_quantile": {"quantile_rate": 0.9, "count_noise": 0.4},
    "auto_s": {"stabiliser": 0.6},
}


@pytest.mark.parametrize("method", GIVEN)
def test_make_private_method_options_kept(method: str) -> None:
    driver = make(method, **GIVEN[method]).optimizer.driver
    for name, value in GIVEN[method].items():
        assert getattr(driver.method.options, name) == value
    assert driver.threshold == 0.5


def test_queries_changed_state_rejected() -> None:
    """A logical batch asks once for each of its physical batches."""
    driver = make("online").optimizer.driver
    driver.method.queries = lambda state: state.threshold.mul_(2)
    refused(lambda: driver.queries(1.0), r"`queries` changes state\.threshold; must be changed in")


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.75, 0.99])
def test_fixed_quantile_threshold_follows_given_quantile(quantile: float) -> None:
    """With a batch of nobody, half of the expected one counts as unclipped."""
    more = {"quantile_rate": 0.3, "count_noise": 0.3, "quantile": quantile}
    made = make("fixed_quantile", noise=Recorded(), **more)
    for _ in range(3):
        before = made.optimizer.max_grad_norm
        made.step(*examples(count=0))
        moved = torch.tensor(made.optimizer.max_grad_norm / before).log().item()
        assert moved == pytest.approx(-0.3 * (0.5 - quantile), rel=1e-3, abs=1e-5)


UNHELD = (
    "optimizer: lacks parameter '{}', which requires a gradient and would be trained without noise"
)


def sgd_of(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for one in modules for p in one.parameters()], lr=0.1)


class Beside(nn.Sequential):
    """Has a parameter of its own."""

    def __init__(self) -> None:
        super().__init__(*network())
        self.scale = nn.Parameter(torch.ones(()))


@pytest.mark.parametrize(
    ("model", "held", "missing"),
    [
        (network(), lambda model: sgd_of(model[3]), "0.weight"),
        (network(), lambda model: sgd_of(model[0], model[3]), "2.weight"),
        (network(), lambda model: torch.optim.SGD([model[0].weight], 0.1), "0.bias"),
        (nn.Sequential(network(), nn.Linear(3, 3)), lambda model: sgd_of(model[0]), "1.weight"),
        (Beside(), lambda model: sgd_of(*model), "scale"),
    ],
)
def test_check_optimizer_missing_parameter_rejected(model, held, missing, mode) -> None:
    refused(lambda: make(mode=mode, model=model, optimizer=held(model)), UNHELD.format(missing))


def unfreeze(model: nn.Module) -> None:
    model[0].requires_grad_(True)


def replace_last(model: nn.Module) -> None:
    model[3] = nn.Linear(5, 3)


def add_parameter(model: nn.Module) -> None:
    model.scale = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(
    ("change", "missing"),
    [(unfreeze, "0.weight"), (replace_last, "3.weight"), (add_parameter, "scale")],
)
def test_optimizer_parameter_trained_later_rejected(
    change: Callable, missing, wrapped, mode
) -> None:
    model = network()
    model[0].requires_grad_(False)
    made = make(mode=mode, model=model, wrap_model=wrapped)
    made.step(*examples(count=5))
    change(model)
    refused(lambda: made.step(*examples(count=5)), UNHELD.format(missing), made, 1)


def test_check_optimizer_missing_frozen_parameter_accepted() -> None:
    model = network()
    model[0].requires_grad_(False)
    made = make(model=model, optimizer=sgd_of(model[2], model[3]))
    made.step(*examples(count=5))
    assert made.optimizer.ledger.step_count == 1


GROUPS = 3


class Branches(nn.Module):
    """Layers side by side, of which one takes its neighbours' examples along."""

    def __init__(self, mixing: int) -> None:
        super().__init__()
        self.layers, self.mixing = nn.ModuleList(nn.Linear(6, 3) for _ in range(GROUPS)), mixing

    def forward(self, inputs: Tensor) -> Tensor:
        of_others = inputs - inputs.mean(dim=0)
        return sum(
            layer(of_others if place == self.mixing else inputs)
            for place, layer in enumerate(self.layers)
        )


def sgd(model: nn.Module, layers: list[nn.Module], **changed: dict) -> torch.optim.Optimizer:
    """Of a group for each layer; `changed`: what is another there, by the group's place."""
    groups = [{"params": [*layer.parameters()]} for layer in layers]
    for place, values in changed.items():
        groups[int(place[1:])] |= values
    return torch.optim.SGD(groups, lr=0.1)


@pytest.mark.parametrize("mixing", range(GROUPS))
def test_check_independence_any_group_mixing_rejected(mixing, mode) -> None:
    model = Branches(mixing)
    refused(lambda: make(mode=mode, model=model, optimizer=sgd(model, list(model.layers))), MIXES)


@pytest.mark.parametrize("how", [{"weight_decay": 0.01}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("place", range(GROUPS))
def test_optimizer_nonplain_group_keeps_factor(place, how) -> None:
    """Equation (21) is derived for plain steps of all parameters."""
    model = Branches(-1)
    made = make(model=model, optimizer=sgd(model, list(model.layers), **{f"_{place}": how}))
    for _ in range(4):
        made.step(*examples(count=7))
    assert made.optimizer.learning_rate_factor == 1.0
    assert made.optimizer.max_grad_norm != 0.5


def test_optimizer_factor_scales_group_rates(mode) -> None:
    model, rates = Branches(-1).double(), (0.1, 0.01, 3.0)
    made = make(
        mode=mode, model=model, noise=Recorded(), learning_rate_rate=0.5,
        optimizer=sgd(model, list(model.layers), _1={"lr": 0.01}, _2={"lr": 3.0}),
    )  # fmt: skip
    for _ in range(3):
        factor = made.optimizer.learning_rate_factor
        before = [[p.detach().clone() for p in layer.parameters()] for layer in model.layers]
        made.step(*examples(double=True, count=7))
        assert [group["lr"] for group in made.optimizer.param_groups] == [*rates]
        for layer, old, rate in zip(model.layers, before, rates, strict=True):
            for parameter, value in zip(layer.parameters(), old, strict=True):
                torch.testing.assert_close(parameter - value, -rate * factor * parameter.grad)
    assert factor != 1.0


@pytest.mark.parametrize(
    ("of", "taken"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_accumulation_dtype_low_precision_widened(of, taken) -> None:
    """With ten bits, what is measured and what is summed could part by a thousandth of C."""
    assert accumulation_dtype(of) == taken
    if of == torch.float64:
        return
    made = make(model=network().to(of))
    assert made.optimizer.dtype == made.optimizer.driver.state.threshold.dtype == taken


@pytest.mark.parametrize("place", range(GROUPS))
def test_optimizer_frozen_group_unchanged(place) -> None:
    """An earlier pass left it a gradient that nobody sanitized."""
    model = Branches(-1)
    model(examples(count=3)[0]).sum().backward()
    model.layers[place].requires_grad_(False)
    before = model.layers[place].weight.clone()
    made = make(model=model, optimizer=sgd(model, list(model.layers)))
    made.backward(*examples(count=3))
    made.optimizer.step()  # without zero_grad, which would clear it
    assert torch.equal(model.layers[place].weight, before)
