"""A budget covers all that is released: planned steps, what was spent before, what is resumed."""

import signal
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from oso_dp import load_private
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.api.budget import remaining_noise_multiplier
from oso_dp.api.statement import Statement
from oso_dp.errors import OsoError, warn_once
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

WHOLE, DELTA = PoissonSampling(1.0), 1e-5


SPENT = [Ledger(WHOLE, [((SumQuery("step", 8.0),), 5)])]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("share", [0.5, 0.9995, 1.0])
def test_remaining_noise_multiplier_spent_budget_rejected(accountant: str, share: float) -> None:
    budget = share * compute_epsilon(SPENT, DELTA, accountant)
    with pytest.raises(OsoError, match="nothing is left for 3 more steps"):
        remaining_noise_multiplier(WHOLE, 3, budget, DELTA, accountant, SPENT)


@pytest.mark.parametrize(("accountant", "share"), [("rdp", 1.001), ("rdp", 4.0), ("pld", 1.01)])
def test_remaining_noise_multiplier_meets_budget(accountant: str, share: float) -> None:
    budget = share * compute_epsilon(SPENT, DELTA, accountant)
    noise = remaining_noise_multiplier(WHOLE, 3, budget, DELTA, accountant, SPENT)
    more = Ledger(WHOLE, [((SumQuery("step", noise),), 3)])
    assert 0.9999 * budget < compute_epsilon([*SPENT, more], DELTA, accountant) <= budget


ALL_EXAMPLES = {"batch_size": 400}  # all examples: priced in no time


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_train_private_epsilon_meets_budget(train, delta) -> None:
    made = train(delta=delta, epochs=3, **ALL_EXAMPLES)
    assert 2.99 < compute_epsilon([made.ledger], delta) <= 3.0
    assert (made.delta, made.epsilon) == (delta, compute_epsilon([made.ledger], delta))
    more = train(resume_from=made, delta=delta, epsilon=4.0, epochs=2, **ALL_EXAMPLES)
    assert 3.99 < compute_epsilon([more.ledger], delta) <= 4.0


@pytest.mark.parametrize("randomness", ["system", "seeded"])
def test_resume_from_bounded_noise_at_smaller_delta_rejected(train, randomness) -> None:
    """At 1e-2 little noise suffices, whose range shows a record with probability 1.5e-6."""
    how = {"randomness": randomness, "seed": None if randomness == "system" else 1}
    made = train(epsilon=24.0, delta=1e-2, epochs=1, **ALL_EXAMPLES, **how)
    for delta, covered in ((1e-3, True), (1e-12, randomness == "seeded")):
        epsilon = compute_epsilon([made.ledger], delta) + 2
        with nullcontext() if covered else pytest.raises(OsoError, match="noise is bounded"):
            train(resume_from=made, epsilon=epsilon, delta=delta, epochs=1, **ALL_EXAMPLES, **how)


def test_charged_ledgers_compose_to_epsilon(train, search) -> None:
    """Planned steps that were not taken, and other trainings of a search, are among them."""
    stopped = train(epochs=6, evaluate_every=2, callbacks=[lambda evaluation: True], **ALL_EXAMPLES)
    found = search({"learning_rate": [0.1, 0.5]}).best
    for made in (stopped, found):
        assert compute_epsilon([made.ledger], DELTA) < 0.9 * made.epsilon
        assert compute_epsilon(made.privacy_cost.charged_ledgers(), DELTA) == made.epsilon
    drawn = search({"learning_rate": [0.1, 0.5]}, search_accounting="random_stopping").best
    with pytest.raises(OsoError, match="add its epsilon and delta to those of the other results"):
        drawn.privacy_cost.charged_ledgers()


SMALL = {"batch_size": 400, "epochs": 1}


@pytest.mark.parametrize(
    ("delta", "users", "line"),
    [
        (1 / 400, False, "publishing one of 400 examples would satisfy"),
        (0.3, False, "delta: 0.3; Delta is not below 1 / 400"),
        (0.0024, False, ""),
        (0.0024, True, ""),
        (0.02, True, "publishing one of 50 users would satisfy"),
    ],
)
def test_delta_large_warned(train, search, delta, users, line, caplog) -> None:
    given = {"users": torch.arange(400) % 50, "batch_size": 50} if users else SMALL
    for call in (train, search):
        warn_once.cache_clear()
        caplog.clear()
        call(delta=delta, **{**given, "epochs": 1})
        assert ("would satisfy" in caplog.text) == bool(line)
        assert line in caplog.text


def test_statement_delta_unrounded(train, search, data) -> None:
    odd = 1.2345678e-7
    made = train(delta=odd, **SMALL)
    best = search({"learning_rate": [0.1]}, delta=odd, epochs=1, validation=data).best
    for one, times in ((made, 1), (best, 2)):
        assert one.delta == Statement.from_json(one.statement.to_json()).delta == odd
        assert str(one.statement).count(f", {odd!r})-differential privacy") == times


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-16), (0.2, 1e-5)])
def test_accountant_pld_never_exceeds_rdp_noise(train, epsilon, delta) -> None:
    noise = {}
    for name in ("rdp", "pld"):
        made = train(epsilon=epsilon, delta=delta, accountant=name, **SMALL)
        assert 0.99 * epsilon < made.epsilon <= epsilon * (1 + 1e-9)
        noise[name] = dict(made.statement.releases)["clipped_gradient"]
    assert noise["pld"] <= noise["rdp"]


@pytest.mark.parametrize(
    ("delta", "validation", "said"),
    [
        (0.0024, None, None),
        (0.0025, None, "1 / 400"),
        (0.0024, 100, None),
        (0.0024, 500, "1 / 500"),
    ],
)
def test_statement_large_delta_stated(search, data, delta, validation, said) -> None:
    """The limit of delta is 1 / n of the larger of the training and the validation set."""
    inputs, targets = (part.repeat(2, *[1] * (part.dim() - 1)) for part in data)
    public = {"score": lambda model: 0.0}
    scored = {"validation": (inputs[:validation], targets[:validation])} if validation else public
    text = str(search({"learning_rate": [0.1]}, delta=delta, **SMALL, **scored).best.statement)
    assert ("Delta is not below" in text) == (said is not None)
    assert said is None or f"Delta is not below {said}: " in text


BREAKS = {"method": "fixed_threshold", "threshold": 1e6}


def interrupt(model: nn.Module) -> float:
    signal.raise_signal(signal.SIGINT)
    return 0.0


HOW = {
    "diverged": {"learning_rate": 1e38, **BREAKS},
    "interrupted": {"evaluate": interrupt, "evaluate_every": 1},
}


@pytest.mark.parametrize("status", HOW)
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_train_private_stopped_counts_planned_steps(train, status, accountant) -> None:
    whole = {"batch_size": 400, "epochs": 4, "accountant": accountant}
    made = train(**HOW[status], **whole)
    assert made.status == status
    assert (made.ledger.step_count, made.privacy_cost.unused_step_count) == (1, 3)
    finished = train(**{**HOW[status], "learning_rate": 0.1, "evaluate": None}, **whole)
    assert (finished.status, finished.privacy_cost.unused_steps) == ("finished", None)
    assert made.epsilon == pytest.approx(finished.epsilon, rel=1e-9)
    assert 2.99 < made.epsilon <= 3.0
    assert compute_epsilon([made.ledger], 1e-5, accountant) < 2.0
    text = str(made.statement)
    assert "Released: 1 of 4 steps" in text
    assert "Epsilon counts 3 more steps, which were planned but not taken" in text
    assert "Epsilon counts" not in str(finished.statement)


def test_accountant_pld_prices_interrupted_steps(train, capsys) -> None:
    accountant = "pld"
    whole = {"batch_size": 400, "epochs": 4, "accountant": accountant, "progress": True}
    made = train(**HOW["interrupted"], **whole)
    cost = format_spent_epsilon(compute_epsilon([made.ledger], 1e-5, accountant))
    planned = format_spent_epsilon(made.epsilon)
    said = " ".join(capsys.readouterr().err.split())
    assert f"stopped at step 1 of 4: these steps cost epsilon {cost} of 3, at delta 1e-05" in said
    assert f"the statement's {planned} counts all planned steps" in said
    assert cost != planned


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_accountant_prices_validation_scores(search, data, accountant) -> None:
    best = search(validation=data, accountant=accountant).best
    spent = best.statement.validation_epsilon
    assert spent == pytest.approx(compute_epsilon([best.privacy_cost.scores], 1e-5, accountant))
    assert 2.99 < spent <= 3.0


def test_resume_from_stopped_spends_unused_steps(train) -> None:
    begun = train(**HOW["interrupted"], batch_size=400, epochs=4)
    more = train(resume_from=begun, batch_size=400, epochs=9)
    assert more.ledger.step_count == 10
    assert more.privacy_cost.unused_steps is None
    assert 2.99 < more.epsilon <= 3.0
    assert more.statement.resumed
    assert train(resume_from=more, batch_size=400, epsilon=4.0).statement.resumed  # for good
    again = train(resume_from=begun, batch_size=400, epochs=9, **HOW["interrupted"])
    assert (again.ledger.step_count, again.privacy_cost.unused_step_count) == (2, 8)
    assert 2.99 < again.epsilon <= 3.0


def test_search_private_diverged_training_counts_whole(search) -> None:
    grid = {"learning_rate": [0.1, 1e38, 0.2]}
    best = search(grid, epochs=3, **BREAKS).best
    assert best.privacy_cost.unused_steps is None
    assert [ledger.step_count for ledger in best.privacy_cost.ledgers()] == [3, 3, 3]
    assert 2.99 < best.epsilon <= 3.0
    with pytest.warns(UserWarning, match="score: no training of this search has one"):
        gone = search({"learning_rate": [1e38, 2e38]}, epochs=3, **BREAKS).best
    assert (gone.status, gone.ledger.step_count, gone.privacy_cost.unused_step_count) == (
        "diverged",
        1,
        2,
    )
    assert 2.99 < gone.epsilon <= 3.0


def test_search_private_stopped_counts_unused_steps(search, train) -> None:
    """A search of three trainings of four steps stops after the second one's first step."""
    calls = []

    def evaluate(model: nn.Module) -> float:
        calls.append(model)
        return interrupt(model) if len(calls) == 5 else 0.0

    best = search(epochs=4, evaluate=evaluate, evaluate_every=1).best
    assert [ledger.step_count for ledger in best.privacy_cost.ledgers()] == [4, 1]
    assert best.privacy_cost.unused_step_count == best.statement.unused_steps == 3 + 4
    assert 2.99 < best.epsilon <= 3.0
    more = train(resume_from=best, batch_size=400, epochs=7)
    assert more.privacy_cost.unused_steps is None
    assert more.statement.resumed
    assert 2.99 < more.epsilon <= 3.0


def test_search_private_diverged_score_counted(search, data) -> None:
    """A missing score is charged, since the divergence may depend on validation examples."""
    grid = {"learning_rate": [0.1, 1e38]}
    best = search(grid, **BREAKS, validation=data).best
    assert best.privacy_cost.scores.step_count == 2
    assert 2.99 < best.statement.validation_epsilon <= 3.0


SEEDED = {"randomness": "seeded", "seed": 3}


def kept(made) -> dict:
    return {
        "history": {name: list(values) for name, values in vars(made.history).items()},
        "privacy_cost": made.privacy_cost.to_json(),
        "statement": made.statement.to_json(),
        "weights": [p.detach().tolist() for p in made.model.parameters()],
        "state": {
            name: repr(value.tolist() if torch.is_tensor(value) else value)  # nan is no nan's equal
            for name, value in made.state.items()
            if name != "buffers"
        },
    }


@pytest.mark.parametrize("method", ["online", "fixed_quantile_linear"])
def test_resume_from_leaves_earlier_unchanged(train, method) -> None:
    more = {"method": method, "epochs": 4, "batch_size": 400, **SEEDED}
    more |= {"quantile": 0.5} if method != "online" else {}
    more |= {"evaluate": lambda model: 0.5, "evaluate_every": 2}
    first = train(**more)
    before = kept(first)
    later = [train(**more, resume_from=first, epsilon=9.0) for _ in range(2)]
    assert kept(first) == before
    # Each goes on from the first, not from where another has gone.
    for one in later:
        assert one.history.step == list(range(1, 9))
        assert one.history.score_step == [2, 4, 6, 8]
        assert one.ledger.step_count == 8
    assert kept(later[0]) == kept(later[1])


RESUMED = {"momentum": 0.3, "schedule": "linear", "averaging": 0.5, "query_noise_ratio": 5.0}


MORE = {"epochs": 4, "batch_size": 400, **SEEDED}


@pytest.mark.parametrize(("saved", "method"), [(False, "online"), (True, None)])
def test_resume_from_keeps_unset_options(train, model, tmp_path, saved, method) -> None:
    first = train(method="online", learning_rate=0.5, **RESUMED, **MORE)
    if saved:
        first.save(tmp_path / "first.oso")
        first = load_private(tmp_path / "first.oso", model)
    again = train(
        method="online", learning_rate=0.5, **RESUMED, **MORE, resume_from=first, epsilon=9.0
    )
    unsaid = train(method=method, **MORE, resume_from=first, epsilon=9.0)
    assert kept(unsaid) == kept(again)
    for name, other in (("momentum", 0.8), ("schedule", "constant"), ("query_noise_ratio", 9.0)):
        said = train(method="online", **MORE, resume_from=first, epsilon=9.0, **{name: other})
        assert kept(said)["weights"] != kept(again)["weights"], name


def test_resume_from_search_keeps_best_point(search, train) -> None:
    scores = iter([0.1, 0.9, 0.5])
    more = {"method": "online", "epochs": 3, "schedule": "linear", **SEEDED}
    grid = {"momentum": [0.9, 0.2, 0.5], "threshold_rate": [0.01]}
    best = search(grid, score=lambda model: next(scores), **more).best
    on = {"epochs": 3, "batch_size": 400, **SEEDED, "resume_from": best, "epsilon": 9.0}
    unsaid = train(method="online", **on)
    said = {"momentum": 0.2, "schedule": "linear", "threshold_rate": 0.01}
    assert kept(unsaid) == kept(train(method="online", **said, **on))
