"""What stands around a step: pieces of batches, schedulers, optimizers, checkpoints."""

import io

import pytest
import torch
from tests.opacus.helpers import (
    MODES,
    QUIET,
    Made,
    Recorded,
    examples,
    in_pieces,
    loader_of,
    make,
    network,
    parameters_of,
    refused,
)
from torch import Tensor, nn

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
METHODS = {"online": {}, "fixed_quantile": {"count_noise": 0.3}, "auto_s": {}}


def state_of(made: Made) -> Tensor:
    values = [made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor]
    return torch.cat([parameters_of(made.optimizer).double(), torch.tensor(values).double()])


def double(method: str = "online", mode: str = "hooks", **arguments) -> Made:
    more = {**METHODS[method], "noise": Recorded(), **arguments}
    return make(method, mode, network(double=True), **more)


@pytest.mark.parametrize(
    ("method", "mode"),
    [*(("online", mode) for mode in MODES), ("fixed_quantile", "hooks"), ("auto_s", "ghost")],
)
def test_optimizer_physical_batches_match_logical(method, mode) -> None:
    outcomes = []
    for pieces in (False, True):
        made = double(
            method,
            mode,
            loader=loader_of(*examples(double=True), seed=4),
            noise_generator=torch.Generator().manual_seed(4),
        )
        if pieces:
            manager = in_pieces(made, 5)
            with manager as loader:
                batches = list(loader)
                queue = list(made.optimizer._step_skip_queue)
                assert sum(queue) == len(batches) - 10  # signals of all pieces but the last ones
                assert any(queue)
                for batch in batches:
                    made.step(*batch)
        else:
            for batch in made.loader:
                made.step(*batch)
        assert made.optimizer.ledger.step_count == 10
        assert made.engine.accountant.history == [(1.0, 0.1, 10)]
        outcomes.append(state_of(made))
    torch.testing.assert_close(*outcomes, rtol=1e-12, atol=1e-12)


def test_model_hooks_repeated_backward_rejected(mode) -> None:
    torch.manual_seed(0)
    # Of layers with factors alone: others' gradients would give the second pass away.
    made = make(mode=mode, model=nn.Linear(6, 3))
    inputs, targets = examples(count=4)

    def twice() -> None:  # ghost mode notices in the second pass, the others in the step
        made.backward(inputs, targets)
        made.backward(inputs, targets)
        made.optimizer.step()

    refused(twice, r"loss.backward: called twice", made)


@pytest.mark.parametrize("whose", ["model", "optimizer"])
def test_optimizer_dropped_backward_has_no_effect(whose, mode) -> None:
    dropped, plain = double(mode=mode), double(mode=mode)
    dropped.backward(*examples(double=True, count=4, seed=9))
    getattr(dropped, whose).zero_grad()
    for made in (dropped, plain):
        made.backward(*examples(double=True, count=4))
        made.optimizer.step()
    assert torch.equal(state_of(dropped), state_of(plain))


def test_optimizer_missing_backward_rejected(mode) -> None:
    made = make(mode=mode)
    refused(lambda: made.optimizer.step(), "no backward pass since")
    made.backward(*examples(count=4))
    made.optimizer.step()
    refused(lambda: made.optimizer.step(), "no backward pass since", made, 1)


def test_model_hooks_pending_forward_rejected(mode) -> None:
    """Else the next batch's rows would hold this one's gradients, too."""
    made = make(mode=mode)
    made.model(examples(count=4)[0])
    refused(lambda: made.step(*examples(count=4)), "training mode has no backward pass")
    made = make(mode=mode)
    with torch.no_grad():
        made.model(examples(count=4)[0])
    made.model.eval()
    made.model(examples(count=4)[0])
    made.model.train()
    made.step(*examples(count=4))


def test_optimizer_summed_loss_scales_gradient(mode) -> None:
    summed = double(mode=mode, loss_reduction="sum")
    mean = double(mode=mode)
    for made in (summed, mean):
        made.backward(*examples(double=True, count=9))
        made.optimizer.pre_step()
    assert summed.optimizer.batch_size == 12
    for here, there in zip(summed.optimizer.params, mean.optimizer.params, strict=True):
        torch.testing.assert_close(here.grad, 12 * there.grad)


def test_wrap_model_false_matches_wrapped(mode) -> None:
    wrapped, bare = double(mode=mode), double(mode=mode, wrap_model=False)
    for made in (wrapped, bare):
        for _ in range(3):
            made.step(*examples(double=True, count=7))
    assert isinstance(bare.model, nn.Sequential)
    assert torch.equal(state_of(wrapped), state_of(bare))


def test_optimizer_factor_scales_scheduled_rate(mode) -> None:
    """Of a closed formula and of one that changes what stands there; neither sees the factor."""
    schedules = {
        "closed": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
        "chained": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
    }
    expected = {"closed": [0.1, 0.05, 0.1 / 3, 0.025], "chained": [0.1, 0.05, 0.025, 0.0125]}
    for name, schedule in schedules.items():
        made = double(mode=mode, learning_rate_rate=0.3)
        scheduler = schedule(made.optimizer)
        factors = set()
        for rate in expected[name]:
            assert made.optimizer.param_groups[0]["lr"] == pytest.approx(rate)
            before, factor = parameters_of(made.optimizer), made.optimizer.learning_rate_factor
            made.step(*examples(double=True, count=7))
            step = parameters_of(made.optimizer) - before
            gradient = torch.cat([p.grad.flatten() for p in made.optimizer.params])
            torch.testing.assert_close(step, -rate * factor * gradient)
            factors.add(factor)
            scheduler.step()
        assert len(factors) > 1


@pytest.mark.parametrize(
    ("build", "moves"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), True),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), True),
        (lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1)), True),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), False),
        (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01), False),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), False),
        (lambda p: torch.optim.Adam(p, lr=0.01), False),
    ],
)
def test_optimizer_plain_sgd_rate_adapted(build, moves) -> None:
    model = network()
    made = make(model=model, optimizer=build(model.parameters()))
    before = parameters_of(made.optimizer)
    for _ in range(4):
        made.step(*examples(count=7))
    assert (made.optimizer.learning_rate_factor != 1.0) == moves
    assert made.optimizer.max_grad_norm != 0.5
    assert not torch.equal(before, parameters_of(made.optimizer))
    if not moves:
        plain = network()
        refused(
            lambda: make(model=plain, optimizer=build(plain.parameters()), learning_rate_rate=0.1),
            "equation \\(21\\) is derived for plain SGD",
        )


@pytest.mark.parametrize(
    ("method", "mode"),
    [*(("online", mode) for mode in MODES), ("fixed_quantile", "hooks"), ("auto_s", "ghost")],
)
def test_load_checkpoint_matches_uninterrupted_run(method, mode) -> None:
    inputs, targets = examples(double=True)
    momentum = 0.9

    def begin() -> Made:
        model = network(double=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        more = METHODS[method]
        return make(method, mode, model, optimizer=optimizer, noise=Recorded(), **more)

    def train(made: Made, steps: range) -> None:
        for step in steps:
            made.step(inputs[5 * step : 5 * step + 5], targets[5 * step : 5 * step + 5])

    straight = begin()
    train(straight, range(10))
    first, second = begin(), begin()
    train(first, range(4))
    file = io.BytesIO()
    first.engine.save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
    file.seek(0)
    second.engine.load_checkpoint(path=file, module=second.model, optimizer=second.optimizer)
    assert torch.equal(state_of(first), state_of(second))
    train(second, range(4, 10))
    assert torch.equal(state_of(straight), state_of(second))
    assert second.optimizer.driver.state.step == 10
    assert second.optimizer.ledger == straight.optimizer.ledger
    assert second.engine.accountant.history == straight.engine.accountant.history


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.pop("oso_dp"), "has no key 'oso_dp'"),
        (lambda d: d["oso_dp"].update(method="auto_s"), "method 'auto_s'; must be 'online'"),
        (lambda d: d["oso_dp"].pop("threshold"), "key 'oso_dp' cannot be read"),
        (lambda d: d["oso_dp"].update(threshold=torch.tensor([torch.nan])), "must be finite"),
        (lambda d: d["oso_dp"].update(threshold=torch.tensor([-1.0])), "must be finite"),
        (lambda d: d["oso_dp"].update(learning_rate_factor=torch.tensor([torch.inf])), "finite"),
        (lambda d: d["oso_dp"]["memory"].update(gradient=torch.zeros(1, 3)), "have 3 values"),
        (lambda d: d["oso_dp"].update(ledger="{}"), "ledger: not readable"),
        (lambda d: d.update(param_groups=[]), "state_dict: "),
    ],
)
def test_optimizer_corrupt_state_rejected(spoil, message) -> None:
    made, other = make(), make()
    for one, steps in ((made, 3), (other, 5)):
        for _ in range(steps):
            one.step(*examples(count=7))
    content = other.optimizer.state_dict()
    content["oso_dp"]["run"] = made.optimizer.state_dict()["oso_dp"]["run"]  # as of its own
    spoil(content)
    before = state_of(made)
    refused(lambda: made.optimizer.load_state_dict(content), message)
    assert torch.equal(before, state_of(made))
    assert made.optimizer.ledger.step_count == 3


@pytest.mark.parametrize(("here", "there"), [(20, 12), (12, 20)])
def test_optimizer_state_other_rate_rejected(here, there) -> None:
    content = make(loader=loader_of(*examples(), batch_size=there)).optimizer.state_dict()
    other = make(loader=loader_of(*examples(), batch_size=here))
    refused(lambda: other.optimizer.load_state_dict(content), r"sampling rate 0.1\d*; must be 0.1")
