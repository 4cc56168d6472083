"""What leaves the data through this room: noise, sensitivity, ledger, and nothing else."""

import json

import pytest
import torch
from tests.opacus.helpers import QUIET, Made, Recorded, examples, make, network, refused
from torch import Tensor, nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.opacus import optimizer
from oso_dp.opacus.mechanism import sanitize
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.noise_composition import combined_noise_multiplier, gradient_noise_multiplier
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount
from oso_dp.privacy.sampling import PoissonSampling

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

RATIO = 1.5  # of nu_q to nu: nu_g is 1.34 nu, so that no two of the three pass for each other
KEYS = {
    "online": (ClippedGradient, ClippedDirection),
    "fixed_quantile": (ClippedGradient, UnclippedCount),
}


def released(made: Made, monkeypatch, inputs: Tensor, targets: Tensor) -> dict:
    """The answers of one step, times the expected batch size."""
    seen = {}

    def watch(*arguments, **more):
        seen.update(sanitize(*arguments, **more))
        return seen

    monkeypatch.setattr(optimizer, "sanitize", watch)
    made.step(inputs, targets)
    return {key: value[0] * made.optimizer.batch_size for key, value in seen.items()}


@pytest.mark.parametrize(
    ("method", "mode", "settings"),
    [
        ("online", "hooks", {"query_noise_ratio": RATIO, "threshold_rate": 0.0}),
        ("online", "ghost", {"query_noise_ratio": RATIO, "threshold_rate": 0.0}),
        ("fixed_quantile", "hooks", {"count_noise": 0.1, "quantile_rate": 0.0}),
    ],
)
def test_sanitize_noise_deviation_matches_sensitivity(method, mode, settings, monkeypatch) -> None:
    nu, threshold, draws = 0.8, 0.5, 120
    made = make(method, mode, noise_multiplier=nu, max_grad_norm=threshold, **settings)
    inputs, targets = examples(count=0)
    answers = [released(made, monkeypatch, inputs, targets) for _ in range(draws)]
    gradients = torch.stack([answer[ClippedGradient] for answer in answers])
    second = torch.stack([answer[KEYS[method][1]] for answer in answers]).view(draws, -1)
    if method == "online":
        query_noise = RATIO * nu
        deviation = query_noise * 1.0
    else:
        query_noise = 2 * 0.1 * made.optimizer.batch_size
        deviation = query_noise * 0.5
    gradient_noise = gradient_noise_multiplier(nu, query_noise)
    assert float(gradients.std()) == pytest.approx(gradient_noise * threshold, rel=0.04)
    # Five standard deviations of the estimate for the count, which is one number a draw.
    assert float(second.std()) == pytest.approx(deviation, rel=0.04 if method == "online" else 0.33)
    # Fresh for each number of each draw, and for each sum.
    assert gradients.flatten().unique().numel() > 0.99 * gradients.numel()
    if method == "online":
        both = torch.stack([gradients.flatten(), second.flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 0.05


def test_sanitize_multipliers_compose_to_nu(mode) -> None:
    nu = 0.8
    noise = Recorded()
    made = make(mode=mode, noise_multiplier=nu, query_noise_ratio=RATIO, noise=noise)
    made.step(*examples(count=7))
    (gradient, g_deviation), (direction, q_deviation) = noise.calls
    assert (gradient, direction) == ("clipped_gradient", "clipped_direction")
    assert g_deviation == pytest.approx(gradient_noise_multiplier(nu, RATIO * nu) * 0.5)
    assert q_deviation == pytest.approx(RATIO * nu)
    assert combined_noise_multiplier([g_deviation / 0.5, q_deviation]) == pytest.approx(nu)
    assert made.engine.accountant.history == [(nu, 0.1, 1)]
    ((queries, count),) = made.optimizer.ledger.steps
    assert [query.noise_multiplier for query in queries] == pytest.approx(
        [g_deviation / 0.5, RATIO * nu]
    )
    assert count == 1


@pytest.mark.parametrize(
    ("method", "accountant"),
    [("online", "prv"), ("online", "rdp"), ("fixed_quantile", "rdp"), ("auto_s", "rdp")],
)
def test_get_epsilon_matches_ledger(method, accountant) -> None:
    more = {"count_noise": 0.3} if method == "fixed_quantile" else {}
    made = make(method, accountant=accountant, **more)
    for _ in range(5):
        made.step(*examples(count=3))
    expected = compute_epsilon([made.optimizer.ledger], 1e-5, accountant)
    # Opacus's RDP has other orders than ours.
    within = 1e-6 if accountant == "prv" else 0.02
    assert made.engine.get_epsilon(1e-5) == pytest.approx(expected, rel=within)


@pytest.mark.parametrize(("method", "second"), [("online", 1.0), ("fixed_quantile", 0.5)])
def test_optimizer_sums_within_sensitivity(method, second, mode, monkeypatch) -> None:
    threshold = 0.5
    inputs, targets = examples(double=True, count=6)
    inputs = inputs * torch.logspace(-3, 6, 6, dtype=torch.double)[:, None]
    more = {"count_noise": 0.3} if method == "fixed_quantile" else {}

    def sums(rows: list[int]) -> tuple[Tensor, Tensor]:
        made = make(
            method, mode, network(double=True), noise=Recorded(), max_grad_norm=threshold, **more
        )
        answers = released(made, monkeypatch, inputs[rows], targets[rows])
        return tuple(answers[key] for key in KEYS[method])

    whole = sums(list(range(6)))
    clipped = 0
    for left_out in range(6):
        rest = sums([row for row in range(6) if row != left_out])
        gradient, other = (float((a - b).norm()) for a, b in zip(whole, rest, strict=True))
        assert gradient <= threshold * (1 + 1e-9)
        assert other <= second * (1 + 1e-9)
        if gradient == pytest.approx(threshold, rel=1e-9):
            clipped += 1
            assert other == pytest.approx(second, rel=1e-9)
    assert clipped > 0


def test_optimizer_nonfinite_example_dropped(mode, monkeypatch) -> None:
    inputs, targets = examples(count=8)
    spoilt = inputs.clone()
    spoilt[3, 0] = torch.nan
    spoilt[5] = torch.inf
    rest = [0, 1, 2, 4, 6, 7]
    with_them = released(make(mode=mode, noise=Recorded()), monkeypatch, spoilt, targets)
    without = released(make(mode=mode, noise=Recorded()), monkeypatch, inputs[rest], targets[rest])
    for key in KEYS["online"]:
        torch.testing.assert_close(with_them[key], without[key])


def test_sanitize_divides_by_expected_size(monkeypatch) -> None:
    inputs, targets = examples(count=1)
    answers = []
    for copies in (1, 4):
        made = make(noise=Recorded())
        assert made.optimizer.batch_size == 12
        released(made, monkeypatch, inputs.repeat(copies, 1), targets.repeat(copies))
        answers.append(torch.cat([p.grad.flatten() for p in made.optimizer.params]))
    torch.testing.assert_close(4 * answers[0], answers[1])
    assert float(answers[0].norm()) == pytest.approx(0.5 / 12, rel=1e-5)  # C over B


@pytest.mark.parametrize("method", ["online", "fixed_quantile"])
def test_method_adapter_raw_gradients_ignored(method, monkeypatch) -> None:
    """Equal answers give equal C and rho, whatever the examples' gradients are."""
    random = torch.Generator().manual_seed(3)
    size = sum(p.numel() for p in make().optimizer.params)
    gradient, direction = ClippedGradient, KEYS[method][1]
    shape = (1,) if method == "fixed_quantile" else (1, size)
    given = [
        {
            gradient: torch.randn(1, size, generator=random),
            direction: torch.randn(shape, generator=random),
        }
        for _ in range(20)
    ]
    paths = []
    for scale in (1e-4, 1e4):
        more = {"count_noise": 0.3} if method == "fixed_quantile" else {}
        made = make(method, **more)
        inputs, targets = examples(count=10)
        path = []
        for answers in given:
            monkeypatch.setattr(optimizer, "sanitize", lambda *a, answers=answers: answers)
            made.step(scale * inputs, targets)
            path.append((made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor))
        paths.append(path)
    assert paths[0] == paths[1]
    assert len({threshold for threshold, _ in paths[0]}) > 3


def test_ledger_step_recorded_before_noise() -> None:
    made = make()

    def stopped(name, deviation, like):
        raise KeyboardInterrupt

    made.optimizer.noise = stopped
    made.backward(*examples(count=4))
    with pytest.raises(KeyboardInterrupt):
        made.optimizer.step()
    assert made.optimizer.ledger.step_count == 1
    assert made.engine.accountant.history == [(1.0, 0.1, 1)]


@pytest.mark.parametrize(
    ("nu", "second"),
    [(1.0, 5.0), (1.0, 1000.0), *((1 - less, 1e9) for less in (1e-8, 1e-6, 1e-4, 0.1))],
)
def test_sanitize_excessive_cost_rejected(nu: float, second: float) -> None:
    ledger = Ledger(PoissonSampling(0.1))
    queries = [ClippedGradient(nu, torch.ones(1)), ClippedDirection(second, torch.ones(1))]
    totals = [torch.zeros(1, 4)] * 2
    refused(
        lambda: sanitize(queries, totals, 1.0, 4, [(4,)], Recorded(), ledger, lambda: None, False),
        "together cost more than a step at noise_multiplier 1",
    )
    assert ledger.step_count == 0


def test_ledger_follows_noise_scheduler(mode) -> None:
    from opacus.schedulers import ExponentialNoise

    made = make(mode=mode, query_noise_ratio=2.0)
    scheduler = ExponentialNoise(made.optimizer, gamma=0.5)
    made.step(*examples(count=4))
    scheduler.step()
    made.step(*examples(count=4))
    assert [nu for nu, _, _ in made.engine.accountant.history] == [1.0, 0.5]
    assert [nu for nu, _ in made.optimizer.ledger.releases()] == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("seeded", [True, False])
def test_noise_resumed_run_draws_afresh(seeded, monkeypatch) -> None:
    """Also where the script sets its seeds again: noise of one value cancels in a difference."""

    def begin() -> Made:
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(5) if seeded else None
        return make(noise_generator=generator)

    nothing = examples(count=0)
    first = begin()
    torch.manual_seed(1)
    values = [released(first, monkeypatch, *nothing)[ClippedGradient] for _ in range(4)]
    saved = first.optimizer.state_dict()
    for _ in range(2):  # two resumptions of one checkpoint differ, too
        again = begin()
        again.optimizer.load_state_dict(saved)
        torch.manual_seed(1)
        values += [released(again, monkeypatch, *nothing)[ClippedGradient] for _ in range(4)]
        assert again.optimizer.ledger.step_count == 8
    scales = [value / value.norm() for value in values]
    likeness = torch.stack(scales) @ torch.stack(scales).T - torch.eye(12)
    assert float(likeness.abs().max()) < 0.9


def test_state_dict_unnoised_sums_absent() -> None:
    """All of its tensors are parameters' momenta, C, the factor, and answers with noise."""
    made = make(optimizer=None)
    made.step(*examples(count=4))
    content = made.optimizer.state_dict()["oso_dp"]
    assert set(content) == {
        "method",
        "step",
        "threshold",
        "learning_rate_factor",
        "memory",
        "ledger",
        "run",
    }
    assert set(content["memory"]) == {"gradient", "direction"}
    assert json.loads(content["ledger"])["steps"][0]["count"] == 1
    answer = content["memory"]["gradient"][0]
    mean = torch.cat([p.grad.flatten() for p in made.optimizer.params])
    assert torch.equal(answer, mean)
    assert isinstance(made.model, nn.Module)


def test_load_state_dict_drops_partial_batch(monkeypatch) -> None:
    """Its examples would count twice, and clipped at another C."""
    saved, batch, sums = make(noise=Recorded()).optimizer.state_dict(), examples(count=1), []
    for left in (False, True):
        made = make(noise=Recorded())
        if left:
            made.optimizer.signal_skip_step(True)
            made.step(*batch)
        made.optimizer.load_state_dict(saved)
        made.optimizer.signal_skip_step(False)
        sums.append(released(made, monkeypatch, *batch)[ClippedGradient])
    assert torch.equal(*sums)
