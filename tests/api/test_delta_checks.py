"""Budgets at other deltas than the usual one: noise, price and statement are at that very one."""

import pytest

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.api.statement import Statement

WHOLE = {"batch_size": 400}  # all examples: priced in no time


@pytest.fixture(params=[1e-2, 1e-9])
def delta(request) -> float:
    return request.param


def test_a_training_keeps_and_uses_its_budget(train, delta) -> None:
    made = train(delta=delta, epochs=3, **WHOLE)
    assert 2.99 < compute_epsilon([made.ledger], delta) <= 3.0
    assert (made.delta, made.epsilon) == (delta, compute_epsilon([made.ledger], delta))
    more = train(resume_from=made, delta=delta, epsilon=4.0, epochs=2, **WHOLE)
    assert 3.99 < compute_epsilon([more.ledger], delta) <= 4.0


def test_a_search_keeps_and_uses_its_budgets(search, data, delta) -> None:
    """That of the training examples, and that of the validation examples."""
    best = search(delta=delta, validation=data).best
    assert 2.99 < compute_epsilon(best.privacy_cost.ledgers(), delta) <= 3.0
    assert 2.99 < compute_epsilon([best.privacy_cost.scores], delta) <= 3.0
    assert best.epsilon == compute_epsilon(best.privacy_cost.ledgers(), delta)
    assert best.statement.validation_epsilon == compute_epsilon([best.privacy_cost.scores], delta)


def test_a_search_that_stops_at_random_keeps_and_uses_its_budgets(search, data, delta) -> None:
    how = {"search_accounting": RANDOM_STOPPING, "mean_runs": 3, "validation": data}
    best = search({"learning_rate": [0.1, 0.5]}, delta=delta, epochs=1, **how).best
    stopping = best.privacy_cost.stopping
    assert 2.99 < stopping.epsilon(stopping.candidate, delta) <= 3.0
    assert 2.99 < stopping.epsilon(best.privacy_cost.scores, delta) <= 3.0
    assert best.epsilon == stopping.epsilon(stopping.candidate, delta)


SMALL = {"batch_size": 400, "epochs": 1}


@pytest.mark.parametrize("odd", [1.2345678e-7, 0.00123456789])
def test_statement_says_delta_unrounded(train, search, data, odd) -> None:
    made = train(delta=odd, **SMALL)
    best = search({"learning_rate": [0.1]}, delta=odd, epochs=1, validation=data).best
    for one, times in ((made, 1), (best, 2)):
        assert one.delta == Statement.from_json(one.statement.to_json()).delta == odd
        assert str(one.statement).count(f", {odd!r})-differential privacy") == times


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-16), (0.2, 1e-5)])
def test_pld_needs_no_more_noise(train, epsilon, delta) -> None:
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
        (0.3, None, "1 / 400"),
        (0.0024, 100, None),
        (0.0024, 500, "1 / 500"),
    ],
)
def test_a_delta_that_promises_nothing_is_said_to(search, data, delta, validation, said) -> None:
    """Of the larger one of two sets: there fewer would have to be given away."""
    inputs, targets = (part.repeat(2, *[1] * (part.dim() - 1)) for part in data)
    public = {"score": lambda model: 0.0}
    scored = {"validation": (inputs[:validation], targets[:validation])} if validation else public
    text = str(search({"learning_rate": [0.1]}, delta=delta, **SMALL, **scored).best.statement)
    assert ("Delta is not below" in text) == (said is not None)
    assert said is None or f"Delta is not below {said}: " in text
