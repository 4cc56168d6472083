"""What a campaign is made of: all of its plans, all stores, and the time that it was given."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from tests.campaign.conftest import STUDY, write_study

from oso_dp.campaign import prepare as module
from oso_dp.errors import OsoError
from oso_dp.study.paper_points import papers_best_runs
from oso_dp.study.plan import read_plan

SECTIONS = {
    "mnist": {"model": "cnn", "epsilons": [3], "seconds_per_step": 1.0},
    "fashion_mnist": {"model": "autoencoder", "epsilons": [1], "seconds_per_step": 1.0},
}


@pytest.fixture(params=["named", "beside the plans"])
def prepared(tmp_path, monkeypatch, request):
    """Prepare a campaign of two plans and two stores: what it is given, and what was checked.

    The stores are named, or those in which the plans lie; its own folder has a part from before.
    """
    paths = []
    for name, section in SECTIONS.items():
        more = {"name": name, "datasets": {name: section}, "granularities": [5]}
        paths.append(tmp_path / name / "plan.json")
        write_study({**STUDY, **more, "batch_size": 512, "epochs": 10}, paths[-1])
    seen = SimpleNamespace(given=None, searches=[], spent=[], budgets=[], have=[])

    def campaign(everything, best, *others, **named):
        seen.given = SimpleNamespace(everything=everything, best=best, **named)
        raise OsoError("enough")

    named = request.param == "named"
    stores = [tmp_path / "kept", tmp_path / "other"] if named else [tmp_path / n for n in SECTIONS]
    stores, own = sorted(stores), tmp_path / "out"
    below = {own: [own / "a part"], **{store: [store] for store in stores}}

    def parts(folder, have):
        seen.have += have
        return SimpleNamespace(progress=tmp_path)

    monkeypatch.setattr(module, "Campaign", campaign)
    monkeypatch.setattr(module, "Parts", parts)
    monkeypatch.setattr(module, "is_store", lambda folder: folder in stores)
    monkeypatch.setattr(module, "stores_in", lambda folder, cohort=None: below[folder])
    for name, kept in (
        ("refuse_other_search_among", seen.searches),
        ("refuse_spent", seen.spent),
        ("check_one_budget", seen.budgets),
    ):
        monkeypatch.setattr(module, name, lambda *facts, kept=kept: kept.append(facts))
    clock = SimpleNamespace(clock=lambda: 1000.0, look=lambda: None)
    monkeypatch.setattr(module, "Control", lambda _: clock)
    options = Namespace(
        plan=paths, device="cpu", threads=1, processes=1, only=[], data=tmp_path,
        have=stores if named else None, skip_missing=False, priorities=None, results=own,
        minutes=3.0, runs_at_once=None, worker=False,
    )  # fmt: skip
    with pytest.raises(OsoError, match="enough"):
        module.prepare(options, lambda line: None)
    return seen, [read_plan(path) for path in paths], stores


def test_the_papers_best_are_those_of_every_plan(prepared) -> None:
    seen, plans, _ = prepared
    by_plan = [{run for c in plan.cohorts for run in papers_best_runs(c)} for plan in plans]
    assert all(by_plan)
    assert seen.given.best == set.union(*by_plan)
    assert {work.cohort.dataset for work in seen.given.everything} == SECTIONS.keys()


def test_it_ends_after_its_minutes(prepared) -> None:
    assert prepared[0].given.deadline == 1000 + 3 * 60


def test_every_store_is_held_against_every_plan(prepared) -> None:
    """Before anything is trained: another search of a cohort, and data that are spent. Of both its
    own parts of before tell, too."""
    seen, plans, stores = prepared
    assert seen.have == stores  # whose runs are not trained again
    own = stores[0].parent / "out" / "a part"
    cohorts = [cohort.name for plan in plans for cohort in plan.cohorts]
    together = {own.parent: [own], **{store: [store] for store in stores}}
    assert [stores for stores, *_ in seen.searches] == [together] * len(cohorts)
    assert sorted(one.name for _, every, _ in seen.searches for one in every) == sorted(cohorts)
    places = {own: "another folder under `--results`"}
    places |= dict.fromkeys(stores, "another folder under `--have`")
    assert [places for places, _ in seen.spent] == [places] * len(plans)
    assert [[one.name for one in every] for _, every in seen.spent] == [
        [one.name for one in plan.cohorts] for plan in plans
    ]


def test_the_plans_share_the_budget_of_data_that_are_not_public(prepared) -> None:
    seen, plans, _ = prepared
    ((every,),) = seen.budgets
    assert [one.name for one in every] == [one.name for plan in plans for one in plan.cohorts]
