"""Each method's update against the formulas of its paper, on given answers."""

import math
from dataclasses import dataclass

import pytest
import torch

from oso_dp.errors import OsoError
from oso_dp.methods import MethodOptions, State, by_name, find_method, method_names
from oso_dp.methods.base import checked_queries, option
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.queries import (
    AdaptiveGradient,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    UnclippedCount,
)

R, P = 3, 5
LAYERS = {"first": 2, "second": 3}


def make(name: str, momentum: float = 0.0, **settings: object):
    method = find_method(name)
    return method(method.Options(**settings), momentum)


def state(noise_multiplier: float = 1.0) -> State:
    return State(
        parameters=torch.zeros(R, P),
        learning_rate=torch.tensor([0.1, 0.2, 0.4]),
        threshold=torch.tensor([1.0, 2.0, 3.0]),
        quantile=torch.tensor([0.5, 0.5, 0.9]),
        noise_multiplier=noise_multiplier,
        batch_size=100,
        step=1,
        layers=dict(LAYERS),
    )


def names(queries) -> list[str]:
    return [query.name for query in queries]


@pytest.mark.parametrize("nu", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", [n for n in method_names() if find_method(n).is_private])
def test_method_queries_cost_step_price(name: str, nu: float) -> None:
    """The queries of a step cost as much as one Gaussian sum with nu, and change nothing."""
    method = make(name, 0.9)
    asked = checked_queries(method, state(nu))
    together = combined_noise_multiplier([query.noise_multiplier for query in asked])
    assert together == pytest.approx(nu, rel=1e-9)
    assert len(set(names(asked))) == len(asked)
    for query in asked:
        assert torch.as_tensor(query.sensitivity(slice(0, R))).isfinite().all()
    # What the results say of the second query is what it gets.
    second = method.split_noise(nu, 100)[1]
    others = [query.noise_multiplier for query in asked if query.kind != asked[0].kind]
    assert second == (pytest.approx(combined_noise_multiplier(others)) if others else None)


def grow(state: State) -> None:
    state.threshold = 2 * state.threshold


def replace_twice(state: State) -> None:
    size = len(state.threshold)
    state.threshold = torch.ones(0)  # the next tensor may lie where the first one did
    state.threshold = torch.ones(size)


def grow_in_place(state: State) -> None:
    state.threshold[1] = 7.0


def count(state: State) -> None:
    state.step += 1


def add_buffer(state: State) -> None:
    state.buffers["sum"] = torch.zeros(R)


def change_buffer(state: State) -> None:
    state.buffers["kept"].mul_(0.5)


def drop_buffer(state: State) -> None:
    del state.buffers["kept"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (grow, "threshold"),
        (replace_twice, "threshold"),
        (grow_in_place, "threshold"),
        (count, "step"),
        (add_buffer, r"buffers\['sum'\]"),
        (change_buffer, r"buffers\['kept'\]"),
        (drop_buffer, r"buffers\['kept'\]"),
    ],
)
def test_checked_queries_changed_state_rejected(change, what: str) -> None:
    """A step of the study asks once, but the drop-in asks for each physical batch."""
    online = make("online")

    class Changing(type(online)):
        def queries(self, state: State):
            change(state)
            return super().queries(state)

    mine = state()
    mine.buffers["kept"] = torch.ones(R, P)
    told = f"method 'online': `queries` changes state.{what}; must be changed in `update` only"
    with pytest.raises(OsoError, match=told):
        checked_queries(Changing(online.options, 0.0), mine)


@pytest.mark.parametrize("name", method_names())
def test_method_initial_values_complete_candidate(name: str) -> None:
    """The initial values have all searched axes, rho, and C if the method is private."""
    method = make(name)
    start = method.initial_values(dict.fromkeys(method.search, 0.5))
    assert {*method.search, "learning_rate"} <= start.keys()
    assert ("threshold" in start) == method.is_private
    assert all(start[axis] == 0.5 for axis in method.search)


def test_find_method_unknown_name_rejected() -> None:
    with pytest.raises(OsoError, match="method: 'onlin'; must be one of adam_wosm"):
        find_method("onlin")


class Parent:
    name = "parent"
    title = "Parent"
    search = ("learning_rate",)
    Options = MethodOptions


class Bare(MethodOptions):
    beta: float = 0.9  # without a decorator


@dataclass(frozen=True)
class Misspelt(MethodOptions):
    beta: float = option(0.9, less=1)


@dataclass(frozen=True)
class Beyond(MethodOptions):
    beta: float = option(1.5, lt=1)


@dataclass(frozen=True)
class Listed(MethodOptions):
    betas: list = option(())  # noqa: RUF009


class Forgetful(Parent):
    pass


class Twin(Parent):
    name = "parent"


class Namesake(Parent):
    name = "namesake"


def test_by_name_subclass_never_replaces_parent() -> None:
    """A subclass without its own name must not replace its parent method."""
    assert by_name([Parent, Forgetful]) == {"parent": Parent}
    with pytest.raises(OsoError, match=r"name 'parent'; .*Twin and .*Parent have it"):
        by_name([Parent, Twin])
    with pytest.raises(OsoError, match=r"title 'Parent'; .* have it"):  # two rows of one table
        by_name([Parent, Namesake])


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"name": 3}, "name must be a string"),
        ({"title": None}, "title must be a string"),
        ({"__abstractmethods__": {"update", "queries"}}, "queries and update must be defined"),
        ({"search": "learning_rate"}, "search 'learning_rate'; must be a tuple of learning_rate,"),
        ({"search": ("learning_rate", "thresh")}, "'thresh'); must be a tuple of learning_rate,"),
        ({"search": None}, "search None; must be a tuple of learning_rate, threshold, quantile"),
        ({"Options": Bare}, "option beta: no field; Options must be a dataclass"),
        ({"Options": Misspelt}, "option beta: limit 'less'; must be one of gt, ge, lt, le"),
        ({"Options": Beyond}, "default of option beta: 1.5; must be a number < 1"),
        ({"Options": Listed}, "option betas: must be a float, int, bool or Literal"),
    ],
)
def test_by_name_invalid_class_rejected(mistake, told: str) -> None:
    own = type("Own", (Parent,), {"name": "own", **mistake})
    with pytest.raises(OsoError, match="class Own: ") as error:
        by_name([Parent, own])
    assert told in str(error.value)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("fixed_threshold", ClippedGradient),
        ("online", ClippedGradient),
        ("fixed_quantile", ClippedGradient),
        ("auto_s", AutomaticGradient),
        ("psac", AdaptiveGradient),
        ("no_dp", PlainGradient),
    ],
)
def test_method_sgd_step_matches_torch(name: str, query: type, momentum: float) -> None:
    """With rates of adaptation at zero every SGD method is torch.optim.SGD."""
    frozen = {
        "online": {"threshold_rate": 0.0, "learning_rate_rate": 0.0},
        "fixed_quantile": {"quantile_rate": 0.0},
        "no_dp": {"optimizer": "sgd"},
    }
    method, mine = make(name, momentum, **frozen.get(name, {})), state()
    theirs = [torch.nn.Parameter(torch.zeros(P)) for _ in range(R)]
    optimizers = [
        torch.optim.SGD([theta], lr=rate, momentum=momentum)
        for theta, rate in zip(theirs, [0.1, 0.2, 0.4], strict=True)
    ]
    for _ in range(4):
        gradient = torch.randn(R, P)
        answers = {
            query: gradient,
            ClippedDirection: torch.randn(R, P),
            UnclippedCount: torch.zeros(R),
        }
        method.update(mine, answers)
        mine.step += 1
        for run, (theta, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            theta.grad = gradient[run].clone()
            optimizer.step()
    torch.testing.assert_close(mine.parameters, torch.stack([t.detach() for t in theirs]))


@pytest.mark.parametrize(
    ("name", "query"), [("no_dp", PlainGradient), ("dp_adam", ClippedGradient)]
)
def test_method_adam_step_matches_torch(name: str, query: type) -> None:
    method, mine = make(name, beta1=0.8, beta2=0.9, stabiliser=0.01), state()
    theirs = [torch.nn.Parameter(torch.zeros(P)) for _ in range(R)]
    optimizers = [
        torch.optim.Adam([theta], lr=rate, betas=(0.8, 0.9), eps=0.01)
        for theta, rate in zip(theirs, [0.1, 0.2, 0.4], strict=True)
    ]
    for _ in range(5):
        gradient = torch.randn(R, P)
        method.update(mine, {query: gradient})
        mine.step += 1
        for run, (theta, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            theta.grad = gradient[run].clone()
            optimizer.step()
    expected = torch.stack([theta.detach() for theta in theirs])
    torch.testing.assert_close(mine.parameters, expected, atol=1e-6, rtol=1e-5)


class TestOnline:
    def test_queries_split_matches_proposition_1(self) -> None:
        gradient, direction = make("online").queries(state(noise_multiplier=2.0))
        assert names([gradient, direction]) == ["clipped_gradient", "clipped_direction"]
        assert direction.noise_multiplier == pytest.approx(7.124 * 2.0)
        assert gradient.noise_multiplier == pytest.approx(2.0 * 1.01, rel=1e-4)
        together = gradient.noise_multiplier**-2 + direction.noise_multiplier**-2
        assert together == pytest.approx(2.0**-2)

    def test_update_follows_equations_20_21(self) -> None:
        method, mine = make("online"), state()
        past_g = torch.eye(R, P)
        past_q = torch.eye(R, P).roll(1, dims=1)
        method.update(mine, {ClippedGradient: past_g, ClippedDirection: past_q})
        assert mine.threshold.tolist() == [1.0, 2.0, 3.0]  # q~_0 = g~_0 = 0
        mine.step = 2
        signs_c, signs_rho = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([-1.0, -1.0, 1.0])
        gradient = signs_c[:, None] * past_q + signs_rho[:, None] * past_g
        answers = {ClippedGradient: gradient, ClippedDirection: torch.zeros(R, P)}
        method.update(mine, answers)
        rate = 2.5e-3
        torch.testing.assert_close(
            mine.threshold, torch.tensor([1.0, 2.0, 3.0]) * (rate * signs_c).exp()
        )
        torch.testing.assert_close(
            mine.learning_rate, torch.tensor([0.1, 0.2, 0.4]) * (rate * signs_rho).exp()
        )

    def test_update_uses_previous_learning_rate(self) -> None:
        """Algorithm 1, line 12 before line 15: this step uses rho_t, not rho_{t+1}."""
        method, mine = make("online", learning_rate_rate=1.0), state()
        ones = {ClippedGradient: torch.ones(R, P), ClippedDirection: torch.ones(R, P)}
        method.update(mine, ones)
        before = mine.learning_rate.clone()
        start = mine.parameters.clone()
        method.update(mine, ones)
        torch.testing.assert_close(start - mine.parameters, before[:, None].expand(R, P))

    def test_update_extreme_values_stay_unbounded(self) -> None:
        """C and rho have no limits: extreme values change by the same factor as others."""
        method, mine = make("online"), state()
        mine.threshold = torch.tensor([1e-6, 1e4, 1e9])
        mine.learning_rate = torch.tensor([1e6, 1e-6, 1e3])
        before = mine.threshold.clone(), mine.learning_rate.clone()
        ones = {ClippedGradient: torch.ones(R, P), ClippedDirection: torch.ones(R, P)}
        for _ in range(3):
            method.update(mine, ones)
        torch.testing.assert_close(mine.threshold, before[0] * math.exp(2 * 2.5e-3))
        torch.testing.assert_close(mine.learning_rate, before[1] * math.exp(2 * 2.5e-3))

    def test_update_orthogonal_vectors_skip_adaptation(self) -> None:
        """The sign of a zero inner product is zero, so neither C nor rho changes."""
        method, mine = make("online"), state()
        one, other = torch.eye(R, P), torch.eye(R, P).roll(1, dims=1)
        method.update(mine, {ClippedGradient: one, ClippedDirection: one})
        method.update(mine, {ClippedGradient: other, ClippedDirection: one})
        assert torch.equal(mine.threshold, state().threshold)
        assert torch.equal(mine.learning_rate, state().learning_rate)


class TestFixedQuantile:
    def test_queries_split_matches_andrew(self) -> None:
        """sigma_b = B/20; nu_Delta = (nu^-2 - (2 sigma_b)^-2)^(-1/2)."""
        gradient, count = make("fixed_quantile").queries(state(noise_multiplier=2.0))
        assert count.noise_multiplier * count.sensitivity(0) == pytest.approx(100 / 20)
        expected = (2.0**-2 - (2 * 100 / 20) ** -2) ** -0.5
        assert gradient.noise_multiplier == pytest.approx(expected)

    def test_update_moves_threshold_towards_quantile(self) -> None:
        method, mine = make("fixed_quantile"), state()
        unclipped = torch.tensor([0.5, 0.7, 0.7])  # b~
        answers = {ClippedGradient: torch.zeros(R, P), UnclippedCount: unclipped - 0.5}
        method.update(mine, answers)
        expected = [
            c * math.exp(-0.2 * (b - gamma))
            for c, b, gamma in zip([1.0, 2.0, 3.0], [0.5, 0.7, 0.7], [0.5, 0.5, 0.9], strict=True)
        ]
        torch.testing.assert_close(mine.threshold, torch.tensor(expected))
        torch.testing.assert_close(method.fraction_clipped(mine), 1 - unclipped)

    def test_update_noisy_share_not_clamped(self) -> None:
        """Clamping a noisy fraction to [0, 1] would make C settle at another quantile."""
        method, mine = make("fixed_quantile"), state()
        mine.threshold = start = torch.tensor([1e-6, 2.0, 1e6])
        unclipped = torch.tensor([-0.25, 1.25, 3.0])
        method.update(mine, {ClippedGradient: torch.zeros(R, P), UnclippedCount: unclipped - 0.5})
        moved = (-0.2 * (unclipped - torch.tensor([0.5, 0.5, 0.9]))).exp()
        torch.testing.assert_close(mine.threshold, moved * start)
        torch.testing.assert_close(method.fraction_clipped(mine), 1 - unclipped)

    def test_split_noise_small_batch_rejected(self) -> None:
        with pytest.raises(OsoError, match=r"count_noise: 0\.05; must be > 0\.1, the step"):
            make("fixed_quantile").split_noise(4.0, batch_size=20)


class TestAdamWOSM:
    def test_update_matches_authors_code(self) -> None:
        method, mine = make("adam_wosm"), state(noise_multiplier=2.0)
        mean = torch.zeros(R, P)
        expected = torch.zeros(R, P)
        for step in range(1, 5):
            mine.step = step
            gradient = torch.randn(R, P)
            method.update(mine, {ClippedGradient: gradient})
            mean = 0.9 * mean + 0.1 * gradient
            size = mine.learning_rate / (2.0 * mine.threshold / 100 + 1e-8)
            expected -= size[:, None] * mean / (1 - 0.9**step)
        torch.testing.assert_close(mine.parameters, expected)

    def test_queries_without_noise_rejected(self) -> None:
        with pytest.raises(OsoError, match="must be > 0"):
            make("adam_wosm").queries(state(noise_multiplier=0.0))


class TestDPAdam:
    def test_initial_values_add_learning_rate(self) -> None:
        method = make("dp_adam")
        (query,) = method.queries(state(2.0))
        assert (type(query), query.noise_multiplier) == (ClippedGradient, 2.0)
        assert torch.equal(query.threshold, state().threshold)
        assert method.initial_values({"threshold": 3.0}) == {
            "threshold": 3.0,
            "learning_rate": 1e-3,
        }
        assert not method.uses_momentum


@pytest.mark.parametrize("kept", [[0], [1], [2], [0, 2], [1, 2], [0, 1, 2], []])
def test_state_select_keeps_run_values(kept: list[int]) -> None:
    """Each run that continues keeps its own values, such as C, after another run ended."""
    mine = state()
    mine.quantile = torch.tensor([0.1, 0.5, 0.9])
    mine.parameters, mine.average = torch.randn(R, P), torch.randn(R, P)
    mine.buffers = {"vectors": torch.randn(R, P), "numbers": torch.randn(R)}
    before = {name: value for name, value in vars(mine).items() if torch.is_tensor(value)}
    before |= mine.buffers
    mine.select(torch.tensor(kept, dtype=torch.int64))
    after = vars(mine) | mine.buffers
    assert len(before) == 7
    for name, value in before.items():
        assert torch.equal(after[name], value[kept])
