"""A study of several data sets: what is said of one holds for that one, wherever it stands."""

from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest
from tests.offered import Offer

from oso_dp.errors import OsoError
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.private_datasets import check_one_budget

STUDY: dict[str, Any] = {
    "name": "test",
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [2],
    "seeds": [0, 1],
}
ANY = {"epsilons": [3], "seconds_per_step": 1}
SECTIONS = {
    "mnist": {"model": "cnn", "precision": "bfloat16", **ANY},
    "fashion_mnist": {"model": "autoencoder", "loss": "sum", **ANY},
    "ag_news": {"model": "bag_of_words_25", "oov_words": "skipped", **ANY},
}
OWN = {"model": "own", **ANY}
USUAL = {"loss": "mean", "oov_words": "zeros", "precision": "float32"}


def study(sections: dict[str, Any], **more: Any) -> dict[str, Any]:
    return deepcopy({**STUDY, "datasets": sections, **more})


@pytest.mark.parametrize("order", [*permutations(SECTIONS)])
def test_each_data_set_has_its_own_choices(order) -> None:
    sections = {name: SECTIONS[name] for name in order}
    every = make_cohorts(parse_config(study(sections), "x"))
    assert [cohort.dataset for cohort in every] == [name for name in order for _ in "ab"]
    for cohort in every:
        asked = {**USUAL, **SECTIONS[cohort.dataset]}
        for name in ("model", *USUAL):
            assert getattr(cohort, name) == asked[name], (cohort.dataset, name)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_protected_data_are_protected_beside_public_ones(offer: Offer, place: int) -> None:
    offer()
    sections = [("mnist", SECTIONS["mnist"]), ("ag_news", SECTIONS["ag_news"])]
    sections.insert(place, ("patients", OWN))
    asked = study(dict(sections), batch_size=20)
    parse_config({**asked, "randomness": "system"}, "x")
    with pytest.raises(
        OsoError, match=r"randomness: seeded; .* datasets\.patients is not declared"
    ):
        parse_config({**asked, "randomness": "seeded"}, "x")
    with pytest.raises(
        OsoError, match=r"search_accounting: single; .* datasets\.patients is not declared"
    ):
        parse_config({**asked, "randomness": "system", "search_accounting": "single"}, "x")


@pytest.mark.parametrize("order", [1, -1])
def test_each_of_two_protected_data_sets_pays_for_its_own_runs(offer: Offer, order: int) -> None:
    (known,) = offer().glob("*.dist-info/entry_points.txt")
    text = known.read_text()
    known.write_text(text + text.splitlines()[1].replace("patients", "visitors") + "\n")
    sections = {"patients": OWN, "visitors": OWN}
    asked = study(sections, batch_size=20, randomness="system")
    every = make_cohorts(parse_config(asked, "x"))
    assert {(cohort.dataset, cohort.budget_runs) for cohort in every} == {
        ("patients", 12),
        ("visitors", 12),
    }
    whole = [one for one in every if one.dataset == "patients"]
    part = [one for one in every if one.dataset == "visitors"][:1]
    check_one_budget([*whole, *part][::order])
    more = [one.with_runs(one.points, [0, 1, 2]) for one in whole]
    with pytest.raises(OsoError, match="18 runs on patients, but its epsilon covers 12"):
        check_one_budget([*more, *part][::order])
