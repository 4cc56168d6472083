"""torch optimizers, schedulers and schedules of one's own: they move what the method would."""

import math

import pytest
import torch
from tests.api.conftest import flat
from torch import nn

from oso_dp import OsoError
from oso_dp.api.options import takes_momentum
from oso_dp.methods import find_method, method_names
from oso_dp.training.schedule_and_averaging import SCHEDULES, rate_factor
from oso_dp.training.torch_optimizer import TorchOptimizer

SEEDED = {"randomness": "seeded", "seed": 1}
FIXED = {"method": "fixed_threshold", "threshold": 0.5}


def sgd(model: nn.Module, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=momentum)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)


@pytest.mark.parametrize("variant", [{}, {"schedule": "linear"}, {"warmup": 0.4, "averaging": 0.9}])
@pytest.mark.parametrize("method", ["fixed_threshold", "fixed_quantile", "online", "auto_s"])
def test_optimizer_sgd_matches_method_steps(method: str, variant: dict, train) -> None:
    """A given SGD optimizer takes the method's own steps up to rounding, with the same C."""
    start = {"fixed_threshold": {"threshold": 0.5}, "fixed_quantile": {"quantile": 0.4}}
    options = {**SEEDED, **variant, "method": method, **start.get(method, {})}
    own = train(learning_rate=0.3, **options)
    given = train(optimizer=sgd, **options)
    torch.testing.assert_close(flat(given), flat(own), rtol=1e-4, atol=1e-5)
    assert given.history.threshold == pytest.approx(own.history.threshold, rel=1e-5)
    rates = [0.3 * factor for factor in given.history.learning_rate]
    assert rates == pytest.approx(own.history.learning_rate, rel=1e-5)
    assert given.ledger == own.ledger


def test_optimizer_gets_only_sanitized_gradient(train, model, monkeypatch) -> None:
    """A second optimizer that replays the sanitized gradients gets the same weights."""
    seen: list[torch.Tensor] = []
    step = TorchOptimizer.step

    def noted(self, parameters, gradient, factor) -> None:
        seen.append(gradient.clone())
        assert factor == 1.0
        step(self, parameters, gradient, factor)

    def groups(model: nn.Module) -> torch.optim.Optimizer:
        weights, biases = ([p for p in model.parameters() if p.dim() == d] for d in (2, 1))
        return torch.optim.AdamW([{"params": biases, "lr": 0.1}, {"params": weights}], lr=0.02)

    monkeypatch.setattr(TorchOptimizer, "step", noted)
    trained = train(optimizer=groups, **SEEDED, **FIXED)
    other = groups(model)
    for gradient in seen:
        torch.nn.utils.vector_to_parameters(
            gradient, grads := [p.clone() for p in model.parameters()]
        )
        for parameter, one in zip(model.parameters(), grads, strict=True):
            parameter.grad = one.detach()
        other.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters())
    torch.testing.assert_close(flat(trained), expected.detach())
    assert len(seen) == trained.ledger.step_count


def test_optimizer_frozen_parameters_unchanged(train, model) -> None:
    """An optimizer of all model.parameters() leaves the frozen ones unchanged."""
    frozen = model[0].weight.requires_grad_(False)
    frozen.grad = torch.ones_like(frozen)
    trained = train(optimizer=adamw, **SEEDED, **FIXED)
    other = train(
        optimizer=lambda model: adamw(nn.ParameterList(filter(is_trained, model.parameters()))),
        **(SEEDED | FIXED),
    )
    torch.testing.assert_close(trained.model[0].weight, frozen, rtol=0, atol=0)
    assert torch.equal(flat(trained), flat(other))
    assert not torch.equal(trained.model[0].bias, model[0].bias)


def is_trained(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad


def test_optimizer_adamw_adapts_threshold_only(train) -> None:
    trained = train(optimizer=adamw, method="online", **SEEDED)
    assert set(trained.history.learning_rate) == {1.0}
    assert len(set(trained.history.threshold)) > 1
    with pytest.raises(OsoError, match="learning_rate_rate: has no effect with AdamW, since equa"):
        train(optimizer=adamw, method="online", learning_rate_rate=0.01)


def test_scheduler_matches_schedule_function(train) -> None:
    halved = {
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5),
        "schedule": "constant",
    }
    function = {"schedule": lambda step, steps: 0.5 ** ((step - 1) // 3)}
    one, other = (
        train(
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.3),
            **given,
            **FIXED,
            **SEEDED,
        )
        for given in (halved, function)
    )
    torch.testing.assert_close(flat(one), flat(other))


def test_scheduler_too_short_rejected(train) -> None:
    def options(steps: int) -> dict:
        return {
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            "scheduler": lambda one: torch.optim.lr_scheduler.OneCycleLR(
                one, 0.3, total_steps=steps
            ),
        }

    steps = train(**SEEDED).ledger.step_count
    assert train(**options(steps), **SEEDED).status == "finished"
    with pytest.raises(OsoError, match=f"scheduler: fails after step {steps} of {steps}: Tried"):
        train(**options(steps - 1), **SEEDED)


@pytest.mark.parametrize("schedule", [None, *SCHEDULES, lambda step, steps: 3.0 / step])
@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_rate_factor_falls_after_warmup(schedule, steps: int) -> None:
    factors = [rate_factor(schedule, step, steps) for step in range(1, steps + 1)]
    assert factors[0] == (3.0 if callable(schedule) else 1.0)
    assert all(0 < factor <= factors[0] for factor in factors)
    assert factors == sorted(factors, reverse=True)
    for warmup in (0.1, 0.5, 0.99):
        grown = [rate_factor(schedule, step, steps, warmup) for step in range(1, steps + 1)]
        for step, (one, other) in enumerate(zip(grown, factors, strict=True), 1):
            expected = other * min(1.0, step / max(1.0, warmup * steps))
            assert one == pytest.approx(expected)
    if schedule == "cosine":
        assert factors[-1] == pytest.approx((1 + math.cos(math.pi * (steps - 1) / steps)) / 2)


def test_optimizer_state_kept_on_resume(train) -> None:
    first = train(optimizer=adamw, epochs=1, **SEEDED, **FIXED)
    counts = []

    def noted(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = adamw(model)
        optimizer.register_step_pre_hook(
            lambda one, args, kwargs: counts.append(
                {int(state["step"]) for state in one.state.values()}
            )
        )
        return optimizer

    further = {**SEEDED, "method": "fixed_threshold", "epsilon": 6.0, "epochs": 1}
    again = train(resume_from=first, optimizer=noted, **further)
    assert counts[0] == {first.ledger.step_count}
    assert again.ledger.step_count == 2 * first.ledger.step_count
    with pytest.raises(OsoError, match="optimizer: must be given, as in resume_from"):
        train(resume_from=first, **further)
    plain = train(epochs=1, **SEEDED, **FIXED, learning_rate=0.1)
    with pytest.raises(OsoError, match="optimizer: must be None, as in resume_from"):
        train(resume_from=plain, optimizer=adamw, **further)


def test_schedule_function_required_on_resume(train, tmp_path) -> None:
    def falling(step: int, steps: int) -> float:
        return 1 / step

    first = train(epochs=1, schedule=falling, **SEEDED)
    with pytest.raises(OsoError, match="schedule: a function in resume_from, which is not stored"):
        train(resume_from=first, epsilon=6.0, epochs=1, **SEEDED)
    again = train(resume_from=first, schedule=falling, epsilon=6.0, epochs=1, **SEEDED)
    assert again.ledger.step_count == 2 * first.ledger.step_count


class Closed(torch.optim.SGD):
    def step(self, closure):
        return super().step(closure)


OTHER = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"optimizer": "adam"}, "optimizer: str; must be callable"),
        ({"optimizer": torch.optim.Adam}, "optimizer: the class Adam; must be a function that"),
        (
            {"optimizer": lambda model: torch.optim.Adam(model.parameters(), lr=-1)},
            "optimizer: fails: Invalid learning rate",
        ),
        (
            {"optimizer": sgd, "scheduler": torch.optim.lr_scheduler.StepLR},
            "scheduler: the class StepLR; must be a function that makes one",
        ),
        ({"schedule": lambda step: 1.0}, "schedule: must be a function of step and steps"),
        ({"optimizer": lambda model: 3}, "optimizer: returns int; must return a torch.optim.Opti"),
        (
            {"optimizer": lambda model: torch.optim.LBFGS(model.parameters())},
            "optimizer: LBFGS needs a closure, whose losses are not sanitized",
        ),
        (
            {"optimizer": lambda model: Closed(model.parameters(), lr=0.1)},
            "optimizer: Closed needs a closure",
        ),
        (
            {"optimizer": lambda model: torch.optim.SGD([next(model.parameters())], lr=0.1)},
            "optimizer: lacks parameter '0.bias', which would not be trained",
        ),
        (
            {"optimizer": lambda model: torch.optim.SGD(OTHER.parameters(), lr=0.1)},
            "optimizer: lacks parameter '0.weight'",
        ),
        (
            {
                "optimizer": lambda model: torch.optim.SGD(
                    [*model.parameters(), *OTHER.parameters()], lr=0.1
                )
            },
            "optimizer: has parameters of another model than the one passed",
        ),
        (
            {
                "optimizer": sgd,
                "scheduler": lambda one: torch.optim.lr_scheduler.ReduceLROnPlateau(one),
            },
            "scheduler: ReduceLROnPlateau needs a metric, which is not sanitized",
        ),
        ({"optimizer": sgd, "scheduler": lambda one: None}, "scheduler: returns NoneType; must"),
        (
            {
                "optimizer": sgd,
                "scheduler": lambda one: torch.optim.lr_scheduler.StepLR(sgd(OTHER), 3),
            },
            "scheduler: has another optimizer; create it with the one",
        ),
        ({"scheduler": lambda one: None}, "scheduler: has no effect without optimizer"),
        ({"optimizer": sgd, "momentum": 0.5}, "momentum: 0.5; has no effect with optimizer"),
        ({"optimizer": sgd, "learning_rate": 1.0}, "learning_rate: 1.0; has no effect with opt"),
        ({"schedule": "cosin"}, "'cosin'; must be one of constant, linear, cosine, or a function"),
        ({"schedule": 3}, "schedule: 3; must be a string"),
        ({"warmup": 1.0}, "warmup: 1.0; must be"),
        (
            {"optimizer": sgd, "method": "fixed_quantile_per_layer", "quantile": 0.5},
            "optimizer: method 'fixed_quantile_per_layer' clips each layer; must be",
        ),
        ({"method": "auto_dog", "warmup": 0.1}, "warmup: 0.1; must be 0.0 for method 'auto_dog'"),
        (
            {"method": "auto_dog", "schedule": lambda step, steps: 1.0},
            "must be 'constant' for method 'auto_dog'",
        ),
    ],
)
def test_optimizer_invalid_options_rejected(options, line: str, train) -> None:
    with pytest.raises(OsoError) as error:
        train(**options)
    assert line in str(error.value)


@pytest.mark.parametrize(
    "method",
    [n for n in method_names() if find_method(n).is_private and not takes_momentum(n)],
)
def test_optimizer_or_momentum_unsupported_rejected(method: str, train) -> None:
    with pytest.raises(OsoError, match=f"optimizer: method '{method}' has its own optimizer"):
        train(method=method, optimizer=sgd)
    with pytest.raises(OsoError, match=f"momentum: 0.0; has no effect with method '{method}'"):
        train(method=method, momentum=0.0, **dict.fromkeys(find_method(method).search, 1.0))


def test_optimizer_without_method_keeps_rates(train) -> None:
    """The optimizer's learning rates apply unscaled, and C starts from the default value."""
    made = train(
        method=None,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
        randomness="seeded",
        seed=1,
    )
    assert set(made.history.learning_rate) == {1.0}
    assert made.history.threshold[0] == 1.0
