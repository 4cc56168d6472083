"""What a search says and keeps: ledgers, messages, scores."""

import dataclasses
import json
import math
import signal
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from oso_dp import OsoError
from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    compute_random_stopping_epsilon,
)
from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.api.scoring import NoisyScorer
from oso_dp.api.search import draw_candidates
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.task import TensorExamples

RANDOM = {"search_accounting": RANDOM_STOPPING}


def failing_at(count: int):
    """A user's function that gives 0.5, and fails when it is called for this time."""
    calls = []

    def function(model) -> float:
        calls.append(model)
        if len(calls) == count:
            raise KeyError("mistake")
        return 0.5

    return function


@pytest.mark.parametrize(
    ("mistake", "steps"), [({"score": failing_at(3)}, [6]), ({"evaluate": failing_at(3)}, [2, 4])]
)
def test_search_private_error_names_released_steps(search, mistake, steps) -> None:
    with pytest.raises(KeyError) as error:
        search(**mistake)
    assert [int(note.split()[0]) for note in error.value.__notes__] == steps


@pytest.mark.parametrize("place", [1, 3])
def test_search_private_error_names_released_scores(search, data, place: int) -> None:
    calls = []

    def right(outputs, target) -> float:
        calls.append(target)
        if len(calls) > 4 + (place - 1) * len(data[0]):  # the first are made-up examples
            raise KeyError("mistake")
        return 0.5

    with pytest.raises(KeyError) as error:
        search(validation=data, metric=right)
    (note,) = error.value.__notes__
    assert note.startswith(f"{2 * place} steps of {place} trainings of this search")
    assert f" and {place} noisy scores were released before" in note


@pytest.mark.parametrize("place", [1, 5])
def test_random_stopping_error_hides_count(search, monkeypatch, place) -> None:
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: 7)
    with pytest.raises(KeyError) as error:
        search(**RANDOM, evaluate=failing_at(place))
    first, second = error.value.__notes__
    assert first.startswith("2 steps were released before this error")
    assert "count all of them" in second


def test_search_private_unknown_cost_rejected_early(search) -> None:
    """Each candidate's noise is checked before the first one is trained."""
    trained = []
    with pytest.raises(
        OsoError, match=r"query_noise_multiplier: .*; must be a number >= 0 and <= "
    ) as error:
        search({"query_noise_ratio": [7.0, 1e10]}, score=lambda model: trained.append(1) or 0.5)
    assert trained == []
    assert not hasattr(error.value, "__notes__")


@pytest.mark.parametrize("how", [{}, RANDOM])
def test_search_private_late_error_counts_all(search, monkeypatch, how) -> None:
    def interrupted(*given, **more) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oso_dp.api.trainer.list_releases", interrupted)
    with pytest.raises(KeyboardInterrupt) as error:
        search(**how)
    assert any("count all of them as spent" in note for note in error.value.__notes__)


@pytest.mark.parametrize("how", [{}, RANDOM])
def test_search_private_ctrl_c_ends_search(search, monkeypatch, how) -> None:
    """After Ctrl-C in a training's last step, the step ends and no other training begins."""
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: 3)
    ends = []

    def evaluate(model) -> float:
        ends.append(model)
        signal.raise_signal(signal.SIGINT)
        return 0.0

    if how:
        with pytest.raises(KeyboardInterrupt):
            search(**how, evaluate=evaluate)
    else:
        made = search(evaluate=evaluate)
        assert [(tried.status, tried.score) for tried in made.trials] == [("finished", -math.inf)]
        assert made.best.ledger.step_count == 2
        assert (made.best.status, made.best.privacy_cost.unused_step_count) == ("finished", 4)
    assert len(ends) == 1


def test_grid_points_reach_trainings(search) -> None:
    grid = {"threshold": [1.0, 2.0], "learning_rate": [0.1, 0.5]}
    made = search(grid, method="adam_wosm")
    points = [(tried.point["threshold"], tried.point["learning_rate"]) for tried in made.trials]
    assert points == [(1.0, 0.1), (1.0, 0.5), (2.0, 0.1), (2.0, 0.5)]
    for tried in made.trials:
        began = {name: getattr(tried.history, name)[0] for name in grid}
        assert began == pytest.approx(tried.point)


ONE = Ledger(PoissonSampling(0.1), [((SumQuery("step", 2.0),), 20)])


def ledger(rate: float = 0.1, noise: float = 2.0, count: int = 20) -> str:
    return Ledger(PoissonSampling(rate), [((SumQuery("x", noise),), count)]).to_json()


def paid(**changed) -> PrivacyCost:
    """Of a file that says this of a search by random stopping."""
    stopping = {"mean_runs": 4, "distribution": "geometric", "candidate": ONE.to_json()}
    stopping |= {name: changed.pop(name) for name in list(changed) if name in stopping}
    scores = ledger(rate=1.0, count=1)
    usual = {"ledger": ledger(), "other_trainings": [], "scores": scores, "stopping": stopping}
    usual["unused_steps"] = None
    return PrivacyCost.from_json(json.dumps({**usual, **changed}))


def test_privacy_cost_smaller_release_accepted() -> None:
    assert paid().stopping.candidate == ONE
    for less in (ledger(count=3), ledger(noise=2.5), ledger(noise=2.0 * (1 - 1e-9))):
        assert paid(ledger=less).epsilon(1e-5, "rdp") == paid().epsilon(1e-5, "rdp")


@pytest.mark.parametrize(
    "claim",
    [
        {"ledger": ledger(noise=1.99)},
        {"ledger": ledger(noise=2.0 * (1 - 1e-5))},
        {"ledger": ledger(count=21)},
        {"ledger": ledger(rate=0.11)},
        {"ledger": ledger(rate=0.05)},  # cheaper at one delta, and of another kind
        {"candidate": Ledger(PoissonSampling(0.1)).to_json()},
        {"candidate": dataclasses.replace(ONE, steps=ONE.steps * 2).to_json()},
        {"other_trainings": [ledger()]},  # nobody would pay for them
        {"scores": ledger(rate=0.01, count=1)},
        {"distribution": "poisson"},
        {"mean_runs": 1},
        {"mean_runs": 10**400},
        {"mean_runs": True},
    ],
)
def test_privacy_cost_impossible_release_rejected(claim) -> None:
    with pytest.raises(OsoError):
        paid(**claim).epsilon(1e-5, "rdp")


@pytest.mark.parametrize("place", range(3))
def test_privacy_cost_less_noise_rejected(place) -> None:
    """One step below the paid noise is rejected, even if all other steps have more noise."""
    steps = [((SumQuery(name, 2.5),), 3) for name in "abc"]
    more = Ledger(PoissonSampling(0.1), steps)
    assert paid(ledger=more.to_json()).epsilon(1e-5, "rdp") == paid().epsilon(1e-5, "rdp")
    steps[place] = ((SumQuery("x", 1.99),), 1)
    with pytest.raises(OsoError, match="contain more than a candidate may release"):
        paid(ledger=more.to_json())


@pytest.mark.parametrize("delta", [1e-12, 0.02])
def test_privacy_cost_matches_random_stopping_epsilon(delta) -> None:
    scores = Ledger(PoissonSampling(1.0), [((SumQuery("x", 2.0),), 1)])
    of_candidate, of_score = (
        compute_random_stopping_epsilon(one, 4, STOPPING_ETA["geometric"], delta)
        for one in (ONE, scores)
    )
    assert paid().epsilon(delta, "rdp") == pytest.approx(of_candidate)
    assert paid().validation_epsilon(delta, "rdp") == pytest.approx(of_score)
    assert of_candidate != pytest.approx(of_score, rel=1e-3)


@pytest.mark.parametrize(("mean", "shape"), [(4, "logarithmic"), (6, "geometric")])
def test_random_stopping_draws_paid_distribution(search, monkeypatch, mean, shape) -> None:
    asked = []
    monkeypatch.setattr(
        "oso_dp.api.search.draw_number_of_runs", lambda *how: asked.append(how) or 1
    )
    stopping = search(
        **RANDOM, mean_runs=mean, stopping_distribution=shape
    ).best.privacy_cost.stopping
    assert [how[:2] for how in asked] == [(mean, STOPPING_ETA[shape])]
    assert (stopping.mean_runs, stopping.distribution) == (mean, shape)


@pytest.mark.parametrize("source", [Seeded(), SystemEntropy()])
def test_draw_candidates_independent_and_uniform(monkeypatch, source) -> None:
    """The privacy cost assumes that the draws are independent and uniform."""
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *how: 4500)
    drawn = draw_candidates(["a", "b", "c"], 9, 0.0, source, "a search")
    pairs = Counter(pairwise(drawn))
    assert len(pairs) == 9
    assert all(abs(count - 500) < 5 * math.sqrt(500) for count in pairs.values())


def test_random_stopping_diverged_best_costs_whole(search) -> None:
    """The best costs all planned steps, since the unreleased trainings may have taken them all."""
    grid = {"learning_rate": [1e38, 2e38]}
    with pytest.warns(UserWarning, match="score: no training of this search has one"):
        best = search(grid, **RANDOM, method="fixed_threshold", threshold=1e6).best
    assert (best.status, best.ledger.step_count) == ("diverged", 1)
    assert 2.99 < best.epsilon <= 3.0


def test_search_private_unseeded_avoids_seeded_source(search, data, monkeypatch) -> None:
    """The number of trainings and the noise of scores must not follow from a released run name."""

    def refuse(*asked, **more):
        raise AssertionError("drawn from a name")

    for method in ("words", "fill"):
        monkeypatch.setattr(Seeded, method, refuse)
    search(**RANDOM, mean_runs=2, validation=data)


@pytest.mark.parametrize("rate", [0.001, 0.4999])
def test_privacy_cost_forged_unused_steps_rejected(rate) -> None:
    """Unused steps at a smaller sampling rate would cost less than the planned steps."""
    made = Ledger(PoissonSampling(0.5), [((SumQuery("clipped_gradient", 2.0),), 10)])
    planned = Ledger(PoissonSampling(0.5), [((SumQuery("unused_steps", 2.0),), 90)])
    paid = PrivacyCost(made, unused_steps=planned)
    assert PrivacyCost.from_json(paid.to_json()) == paid
    forged = dataclasses.replace(planned, sampling=PoissonSampling(rate))
    with pytest.raises(OsoError, match="unused_steps: must have the sampling of the ledger"):
        PrivacyCost.from_json(PrivacyCost(made, unused_steps=forged).to_json())


SCORED: list = []


@pytest.fixture
def scored(search, data):
    """On private examples; composition; one search for all tests."""
    if not SCORED:
        SCORED.append(search(validation=(data[0][:90], data[1][:90]), epsilon=2.0))
    return SCORED[0]


def test_resume_from_keeps_validation_cost(scored, train) -> None:
    best = scored.best
    more = train(resume_from=best, batch_size=400, epsilon=3.0)
    assert more.privacy_cost.scores == best.privacy_cost.scores
    for name in ("validation_epsilon", "validation_examples", "scored"):
        assert getattr(more.statement, name) == getattr(best.statement, name)
    assert 1.99 < more.statement.validation_epsilon <= 2.0
    assert more.statement.planned_steps == more.ledger.step_count == 2 + 16 // 8


def test_statement_epsilon_and_delta_unrounded(scored) -> None:
    """The statement prints each epsilon, delta and sampling rate without rounding."""
    numbers = {"epsilon": 1.25, "validation_epsilon": 1.75, "budget": 2.55}
    rates = {"delta": 1.4e-5, "sampling_rate": 0.0853333}
    text = str(replace(scored.best.statement, **numbers, **rates))
    assert "(1.25, 1.4e-05)-differential privacy, by " in text
    assert "each is protected by (1.75, 1.4e-05)-differential privacy" in text
    assert "the budget was epsilon 2.55." in text
    assert "at sampling rate 0.0853333 of 400 examples" in text
    assert f"noise of standard deviation {scored.score_std:.2g}." in text
    assert "their epsilons and deltas add up" in text


@pytest.mark.parametrize(
    "claim",
    [
        {"validation_epsilon": 0.5},
        {"validation_epsilon": None},
        {"validation_examples": 0},
        {"tuning": "included. One training."},
    ],
)
def test_statement_false_claim_rejected(scored, claim) -> None:
    best = scored.best
    assert best.statement.describes(best.privacy_cost)
    assert not replace(best.statement, **claim).describes(best.privacy_cost)


@pytest.mark.parametrize("name", ["epsilon", "validation_epsilon"])
def test_statement_slightly_wrong_epsilon_rejected(scored, name) -> None:
    best = scored.best
    for share in (1e-2, 1e-3, 1e-5, -1e-5):
        said = {name: getattr(best.statement, name) * (1 - share)}
        assert not replace(best.statement, **said).describes(best.privacy_cost)


CPU = torch.device("cpu")


def scores_of(targets: Tensor, right, microbatch_size: int | None = None) -> NoisyScorer:
    examples = TensorExamples(torch.zeros(len(targets), 2), targets)
    return NoisyScorer(examples, right, 1e-3, Seeded(), CPU, microbatch_size)


@pytest.mark.parametrize("microbatch_size", [None, 1, 100])
@pytest.mark.parametrize("examples", [1, 256, 257])
def test_noisy_scorer_counts_examples_once(examples: int, microbatch_size: int | None) -> None:
    """An example that counted twice would move the sum by twice its sensitivity."""
    seen: list[int] = []

    def right(outputs: Tensor, targets: Tensor) -> float:
        seen.append(int(targets))
        return float(targets) / examples

    scores = scores_of(torch.arange(examples), right, microbatch_size)
    found = scores(SimpleNamespace(run_id="a", model=nn.Linear(2, 2)))
    assert seen == list(range(examples))
    assert found == pytest.approx((examples - 1) / (2 * examples), abs=8 * scores.std + 1e-6)


class Drawing(nn.Linear):
    """Draws a random number for each example, as a model with dropout that stays on."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn(len(x), 1)


def test_noisy_scorer_drawing_model_scores_examples_alone() -> None:
    def right(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[0, 0].sigmoid()

    model, values = Drawing(2, 2), []
    for count in (40, 39):
        torch.manual_seed(0)
        inputs = torch.linspace(-2, 2, 80).view(40, 2)[-count:]
        examples = TensorExamples(inputs, torch.zeros(count))
        values.append(NoisyScorer(examples, right, 1e-3, Seeded(), CPU, 16)._values(model))
    assert torch.equal(values[0][1:], values[1])


class NotingScores(nn.Module):
    """Adds up what goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum() + 1
        return x


def test_noisy_scorer_leaves_model_unchanged() -> None:
    """The model is released, so scoring must store nothing of the validation examples in it."""
    inner = NotingScores()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(inner))
    scores = scores_of(torch.arange(5), lambda outputs, targets: 1.0)
    scores(SimpleNamespace(run_id="a", model=model))
    assert float(inner.total) == 0.0
    assert all(layer.training for layer in model.modules())


class Shortening(nn.Module):
    """Shortens in place what it has, as it is scored."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kept, self.calls = nn.Linear(2, 2), 0
        self.kept.requires_grad_(kind != "frozen")
        self.register_buffer("total", torch.ones(2))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "attribute":
            self.calls += len(x)
        changed = self.total if self.kind == "buffer" else self.kept.weight.data
        if not self.training and self.kind != "attribute":
            changed *= 0.9
        return self.kept(x)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        *(("trained", r"parameter '0\.kept\.weight'"), ("frozen", r"parameter '0\.kept\.weight'")),
        *(("buffer", r"buffer '0\.total'"), ("attribute", "attribute 'calls' of layer '0'")),
    ],
)
def test_noisy_scorer_check_changing_model_rejected(kind: str, named: str) -> None:
    """A forward pass that changes the model would let one example affect another's score."""
    scores = scores_of(torch.arange(5), lambda outputs, targets: 1.0)
    with pytest.raises(OsoError, match=f"model: its forward pass changes {named}"):
        scores.check(nn.Sequential(Shortening(kind)))


class TwoFaced(nn.Module):
    """Says another class while it is trained."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.0] if self.training else [0.0, 1.0]]).expand(len(x), 2)


def test_noisy_scorer_uses_eval_mode() -> None:
    """The model is scored in eval mode and then returns to training mode."""
    targets = torch.ones(50, dtype=torch.int64)
    share = scores_of(
        targets, lambda outputs, one: float((outputs.argmax(-1) == one).float().mean())
    )
    model = nn.Sequential(nn.Linear(2, 2), TwoFaced()).train()
    assert share(SimpleNamespace(run_id="a", model=model)) == pytest.approx(1.0, abs=0.1)
    assert model.training
