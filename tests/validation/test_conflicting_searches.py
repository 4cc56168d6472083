"""What no column holds is refused before training: a store is not spoiled for good."""

from dataclasses import replace

import pytest
from tests.planned_rows import rows_of

from oso_dp.analysis.accounts import account_grids, check_budgets
from oso_dp.errors import OsoError
from oso_dp.results.collect import collect
from oso_dp.results.conflicts import check_same_search
from oso_dp.results.read import read_results
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import make_plan, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .conftest import COHORT, STUDY, content, refused, write

OTHER = STUDY + "grid: {log10_learning_rate: [-1, 1]}\n"
TRAIN = ["train", "--cohort", COHORT, "--data", "none.npz", "--output", "new", "--store", "store"]


def study(text):
    return parse_config(read_yaml(text, "x"), "x")


def test_check_budgets_two_grids_rejected(place) -> None:
    other = make_plan(study(OTHER))
    for kind, rows in rows_of(other).items():
        write(place / "other", kind, rows)
    collect([place / "other"], place / "store")
    with pytest.raises(OsoError, match="its ledgers cost epsilon"):
        check_budgets(account_grids(read_results(place / "store").runs))


def test_plan_train_other_grid_rejected(place, oso) -> None:
    (place / "other.yaml").write_text(OTHER)
    write_plan(make_plan(study(OTHER)), place / "other.json")
    before = content(place)
    said = f"store: has 2 points of another search of {COHORT}"
    refused(oso("plan", "--config", "other.yaml", "--output", "new.json"), said)
    refused(oso(*TRAIN, "--plan", "other.json"), said)
    with pytest.raises(OsoError, match="2 points of another search"):
        check_same_search(place / "store", make_cohorts(study(OTHER)))
    assert content(place) == before


@pytest.mark.parametrize("way", ["random_stopping", "linear_scaling"])
def test_check_same_search_any_accounting_rejected(way: str, place) -> None:
    texts = [text.replace("  no_dp: {}\n", "") for text in (STUDY, OTHER)]
    mine, other = (study(f"{text}search_accounting: {way}\n") for text in texts)
    for kind, rows in rows_of(make_plan(mine)).items():
        write(place / way, kind, rows)
    check_same_search(place / way, make_cohorts(mine))
    named = f"has 2 points of another search of {COHORT}.{way}"
    with pytest.raises(OsoError, match=named):
        check_same_search(place / way, [one for one in make_cohorts(other) if one.is_private])


def test_check_same_search_overlapping_grid_rejected(place) -> None:
    """Two grids of two points that share one point are different searches."""
    with pytest.raises(OsoError, match="2 points of another search"):
        check_same_search(
            place / "store", make_cohorts(study(STUDY + "grid: {log10_learning_rate: [-2.5, 1]}\n"))
        )


def test_plan_train_later_cohort_checked(place, oso) -> None:
    text = OTHER.replace("epsilons: [3]", "epsilons: [1, 3]")
    (place / "other.yaml").write_text(text)
    plan = make_plan(study(text))
    assert [one.epsilon for one in plan.cohorts if one.is_private] == [1, 3]
    write_plan(plan, place / "other.json")
    said = f"store: has 2 points of another search of {COHORT}"
    refused(oso("plan", "--config", "other.yaml", "--output", "new.json"), said)
    refused(oso(*TRAIN, "--plan", "other.json"), said)
    assert not (place / "new.json").exists()


def test_check_same_search_renamed_file_read(place) -> None:
    (only,) = [path for path in (place / "store/runs.parquet").iterdir() if COHORT in path.name]
    only.rename(only.with_name("a.parquet"))
    assert len(read_results(place / "store").runs) == 4
    check_same_search(place / "store", make_cohorts(study(STUDY)))
    with pytest.raises(OsoError, match="2 points of another search"):
        check_same_search(place / "store", make_cohorts(study(OTHER)))


def test_plan_train_same_grid_accepted(place, oso) -> None:
    (place / "more.yaml").write_text(STUDY.replace("seeds: [0]", "seeds: [0, 1, 2]"))
    for name in ("study", "more"):
        assert oso("plan", "--config", f"{name}.yaml", "--output", "new.json")[0] == 0
    assert len(read_plan(place / "new.json").run_ids()) == 12
    refused(oso(*TRAIN, "--plan", "plan.json"), "none.npz")  # it came as far as the data


def test_check_same_search_nonprivate_cohort_accepted(place) -> None:
    (without,) = [cohort for cohort in make_cohorts(study(OTHER)) if not cohort.is_private]
    check_same_search(place / "store", [without])


def test_check_same_search_single_runs_accepted(place) -> None:
    def guesses(text):
        plan = make_plan(study(text + "search_accounting: single\n"))
        return replace(plan, cohorts=tuple(one for one in plan.cohorts if one.is_private))

    alone, other = guesses(STUDY), guesses(OTHER)
    for kind, rows in rows_of(alone).items():
        write(place / "guesses", kind, rows)
    check_same_search(place / "guesses", other.cohorts)
    for kind, rows in rows_of(other).items():
        write(place / "guesses_too", kind, rows)
    collect([place / "guesses", place / "guesses_too"], place / "both")
    accounts = account_grids(read_results(place / "both").runs)
    check_budgets(accounts)
    assert {one.runs for one in accounts} == {1}


def test_check_same_search_other_precision_accepted(place) -> None:
    dataset = {**study(OTHER).model_dump()["datasets"]["glyphs"], "precision": "bfloat16"}
    other = parse_config({**study(OTHER).model_dump(), "datasets": {"glyphs": dataset}}, "x")
    check_same_search(place / "store", make_cohorts(other))
    with pytest.raises(OsoError, match="2 points of another search"):
        check_same_search(place / "store", make_cohorts(study(OTHER)))


@pytest.mark.parametrize("order", [1, -1])
def test_check_same_search_cohort_order_irrelevant(order: int, place) -> None:
    (searched,) = [cohort for cohort in make_cohorts(study(OTHER)) if cohort.is_private]
    for others in (
        study(OTHER + "search_accounting: single\n"),
        study(OTHER.replace("epsilons: [3]", "epsilons: [9]")),
    ):
        before = [cohort for cohort in make_cohorts(others) if cohort.is_private]
        check_same_search(place / "store", before)
        with pytest.raises(OsoError, match=f"2 points of another search of {COHORT}"):
            check_same_search(place / "store", [*before, searched][::order])


def test_check_same_search_all_files_read(place) -> None:
    searches = {}
    for precision in ("float32", "bfloat16"):
        both = [study(text).model_dump() for text in (STUDY, OTHER)]
        for given in both:
            given["datasets"]["glyphs"]["precision"] = precision
        mine, other = (parse_config(given, "x") for given in both)
        for kind, rows in rows_of(make_plan(mine)).items():
            write(place / precision, kind, rows)
        searches[precision] = make_cohorts(other)
    collect([place / precision for precision in searches], place / "all")
    assert len(list((place / "all/runs.parquet").glob(f"{COHORT}.*"))) == len(searches)
    for others in searches.values():
        with pytest.raises(OsoError, match=f"2 points of another search of {COHORT}"):
            check_same_search(place / "all", [one for one in others if one.is_private])
