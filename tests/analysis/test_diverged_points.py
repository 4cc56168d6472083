"""What is said of the paper's own point where its runs, or all but one, diverged."""

import pytest
from tests.analysis.test_verdicts import verdicts


def searched(store, at_papers, elsewhere):
    """Online's whole grid of k = 7: values of seeds at the paper's point, and at the best one."""
    for place in range(7):
        rate = 10 ** (-2.5 + 4 * place / 6)
        for seed, value in enumerate({4: at_papers, 6: elsewhere}.get(place, [0.5])):
            ended = {"values": (), "diverged_at": 3} if value is None else {"values": (value,)}
            store.add(k=7, seed=seed, learning_rate=rate, **ended)
    return store


@pytest.mark.parametrize("seeds", [2])
def test_judge_cells_diverged_paper_point_differs(seeds, store, study) -> None:
    """The best point differs from the paper's point if all seeds of the latter diverged."""
    made = searched(store, [None] * seeds, [0.9 + 0.001 * seed for seed in range(seeds)])
    said = verdicts(study, made, "mnist", 7, 9.0)["online"]
    assert said == ("no value printed", "another point")


@pytest.mark.parametrize("lead", [0.3])
def test_judge_cells_one_seed_undecided(lead: float, store, study) -> None:
    said = verdicts(study, searched(store, [0.6], [0.6 + lead]), "mnist", 7, 9.0)["online"]
    assert said == ("no value printed", "undecided")


@pytest.mark.parametrize(("seeds", "said"), [([0.6, None, None], "as good"),
                                             ([0.6, 0.601, None], "another point")])  # fmt: skip
def test_judge_cells_diverged_seeds_uncounted(seeds, said, store, study) -> None:
    """Diverged seeds do not count; a single remaining seed takes the std of the best point."""
    best = [0.55, 0.65, 0.75] if said == "as good" else [0.75, 0.751, 0.752]
    assert verdicts(study, searched(store, seeds, best), "mnist", 7, 9.0)["online"][1] == said
