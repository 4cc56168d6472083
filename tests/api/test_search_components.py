"""A search whose batches are a part of the examples: a step is no epoch, and a score is of all."""

import pytest

from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.privacy.sampling import PoissonSampling

PART = {"batch_size": 100, "epochs": 1.5}  # six steps at a rate of a quarter


@pytest.mark.parametrize("how", [{}, {"search_accounting": RANDOM_STOPPING, "mean_runs": 3}])
def test_both_budgets_are_kept_and_used(search, data, monkeypatch, how) -> None:
    """Of the examples that train, and of those that the models are scored on."""
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: 2)
    best = search({"learning_rate": [0.1, 0.5]}, validation=data, **PART, **how).best
    statement = best.statement
    nu = best.ledger.releases()[0][0]
    (noise, _), *_ = best.privacy_cost.scores.releases()
    kind = (RANDOM_STOPPING, STOPPING_ETA["logarithmic"]) if how else ("composition",)
    runs = 3 if how else 2
    spent = Search(PoissonSampling(0.25), 6, runs, *kind).epsilon(nu, 1e-5)
    seen = Search(PoissonSampling(1.0), 1, runs, *kind).epsilon(noise, 1e-5)
    assert statement.epsilon == pytest.approx(spent, rel=1e-6)
    assert statement.validation_epsilon == pytest.approx(seen, rel=1e-6)
    for epsilon in (spent, seen):
        assert 2.99 < epsilon <= 3.0


def test_what_was_never_begun_counts_with_all_its_steps(search) -> None:
    """Of three trainings of six steps the third; somebody stops the second one's score."""
    scores = iter([0.3])

    def score(model) -> float:
        try:
            return next(scores)
        except StopIteration:
            raise KeyboardInterrupt from None

    best = search(score=score, **PART).best
    assert [ledger.step_count for ledger in best.privacy_cost.ledgers()] == [6, 6]
    assert best.privacy_cost.unused_step_count == 6
    assert 2.99 < best.epsilon <= 3.0


@pytest.mark.filterwarnings("ignore:score. no training of this search has one")
def test_a_large_grid_has_the_noise_of_all_its_points(search) -> None:
    """Stopped at the first of ninety, which has the noise of ninety."""

    def score(model) -> float:
        raise KeyboardInterrupt

    grid = {"learning_rate": [0.01 * number for number in range(1, 91)]}
    best = search(grid, score=score, epochs=1).best
    nu = best.ledger.releases()[0][0]
    assert 2.99 < Search(PoissonSampling(1.0), 1, 90).epsilon(nu, 1e-5) <= 3.0
    assert best.privacy_cost.unused_step_count == 89
