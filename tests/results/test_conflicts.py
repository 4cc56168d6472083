"""Private data are spent by whoever trained on them, of each data set and file."""

from types import SimpleNamespace

import pandas as pd
import pytest
from tests.stores import options

from oso_dp.errors import OsoError
from oso_dp.results.checks import shared_budgets
from oso_dp.results.collect import collect
from oso_dp.results.conflicts import check_budget_unspent, places_elsewhere, study_places
from oso_dp.results.write import write_table
from oso_dp.study.identity import make_run_id

from .conftest import evaluation_row, part, run_row, unfinished


def planned(dataset: str, *run_ids: str, public: bool = False) -> SimpleNamespace:
    """A cohort, as far as its name and its runs go, and otherwise as `run_row` has them."""
    runs = [SimpleNamespace(run_id=run_id) for run_id in run_ids]
    facts = {**run_row(""), "dataset": dataset, "is_public": public, "runs": runs}
    return SimpleNamespace(**facts)


def make_runs(place):
    """A shard with one run, or what a killed job leaves of it."""
    is_job = place.name == "progress" or place.parent.name == ".progress"
    return (unfinished if is_job else part)(place, "known", dataset="patients")


@pytest.mark.parametrize("order", [1, -1])
def test_check_budget_unspent_checks_each_dataset(order: int, tmp_path) -> None:
    store = part(tmp_path / "store", "known", dataset="pupils")
    cohorts = [planned("patients", "a"), planned("pupils", "known"), planned("pupils", "b")]
    check_budget_unspent({store: "x"}, cohorts[::order])
    cohorts[1] = planned("pupils", "new")
    with pytest.raises(OsoError, match="has 1 runs on pupils that are not of this study"):
        check_budget_unspent({store: "x"}, cohorts[::order])
    check_budget_unspent({store: "x"}, [planned("pupils", "new", public=True), cohorts[0]])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"epsilon": 8.0}, r"not of this study \(epsilon: 9.0 there, 8.0 here\); their"),
        ({"data_version": "2"}, r"not of this study \(data_version: none there, 2 here\); their"),
        ({}, "not of this study; their"),  # another grid, say
    ],
)
def test_check_budget_unspent_names_differences(facts, said: str, tmp_path) -> None:
    store = part(tmp_path / "store", "old", dataset="patients")
    new = planned("patients", "new")
    vars(new).update(facts)
    with pytest.raises(OsoError, match=said):
        check_budget_unspent({store: "x"}, [new])


def test_check_budget_unspent_reads_renamed_files(tmp_path) -> None:
    store = tmp_path / "store"
    collect([part(tmp_path / "part", "run", dataset="patients")], store)
    (only,) = (store / "runs.parquet").iterdir()
    only.rename(only.with_name("a.parquet"))
    check_budget_unspent({store: "x"}, [planned("patients", "run")])
    with pytest.raises(OsoError, match="has 1 runs on patients"):
        check_budget_unspent({store: "x"}, [planned("patients", "another")])


def test_check_budget_unspent_reads_all_files(tmp_path) -> None:
    sizes = (2, 5, 7, 9)
    parts = [part(tmp_path / f"{k}", f"run{k}", dataset="patients", k=k) for k in sizes]
    collect(parts, tmp_path / "store")
    for k in sizes:
        mine = [planned("patients", f"run{other}") for other in sizes if other != k]
        with pytest.raises(OsoError, match="has 1 runs on patients"):
            check_budget_unspent({tmp_path / "store": "x"}, mine)
    check_budget_unspent(
        {tmp_path / "store": "x"}, [planned("patients", *(f"run{k}" for k in sizes))]
    )


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"store"}, "other folders under `results` and `report`"),
        ({"build/x/parts/a/shard0"}, "another study under `name`"),
        ({"build/x/parts/a/shard12"}, "another study under `name`"),
        ({"build/x/parts/patients.online/shard3/progress"}, "another study under `name`"),
        (
            {"store", "build/x/parts/b/shard1"},
            "other folders under `results` and `report` and another study under `name`",
        ),
    ],
)
def test_study_places_name_config_keys(held, said, tmp_path) -> None:
    for place in held:
        make_runs(tmp_path / place)
    places = study_places(tmp_path / "store", tmp_path / "build/x")
    check_budget_unspent(places, [planned("patients", "known")])
    with pytest.raises(OsoError, match=f"has 1 runs on patients .* or name {said} and add"):
        check_budget_unspent(places, [planned("patients", "new")])
    check_budget_unspent(
        study_places(tmp_path / "else", tmp_path / "build/y"), [planned("patients", "b")]
    )


@pytest.mark.parametrize(
    "place",
    [
        *("old/parts/a/shard0", "old/parts/patients.online/shard1/progress"),
        *("campaign/parts/a.12", "campaign/parts/.progress/patients.online.12"),
        *("campaign/parts-of/my/store/a.12", "campaign/parts-of/x/.progress/patients.online.12"),
    ],
)
def test_check_budget_unspent_other_study_raises(place, tmp_path) -> None:
    """Runs of another study or a campaign are spent, also those of a killed job."""
    root, build = tmp_path / "build", tmp_path / "build/new"
    made = make_runs(root / place)
    places, mine = study_places(tmp_path / "store", build), [planned("patients", "known")]
    assert places_elsewhere(root, build) == [made]
    assert places_elsewhere(root, root / place.partition("/")[0]) == []
    with pytest.raises(OsoError, match="has 1 runs of this study on patients, of a study of ano"):
        check_budget_unspent(places, mine, [made])
    check_budget_unspent(places, [planned("patients", "another")], [made])
    collect([part(tmp_path / "finished", "known", dataset="patients")], tmp_path / "store")
    check_budget_unspent(places, mine, [made])


def test_check_budget_unspent_damaged_job_raises(tmp_path) -> None:
    """A killed job's damaged file may have runs of its data set."""
    made = make_runs(tmp_path / "build/x/parts/patients.online/shard0/progress")
    made.write_bytes(made.read_bytes()[:-9])
    places = study_places(tmp_path / "store", tmp_path / "build/x")
    with pytest.raises(OsoError, match=r"rows\.pt: damaged; it may have finished runs"):
        check_budget_unspent(places, [planned("patients", "known")])
    check_budget_unspent(places, [planned("pupils", "known")])


def test_check_budget_unspent_formerly_private_raises(tmp_path) -> None:
    options_of = {"data_version": "1", "randomness": "system", "budget_runs": 4}
    row = run_row("one", dataset="patients", **options(**options_of))
    row["run_id"] = make_run_id(row)
    write_table(tmp_path / "store/runs.parquet", "runs", [row])
    public = planned("patients", "new", public=True)
    vars(public).update(data_version="1")
    other = planned("pupils", "new", public=True)
    vars(other).update(data_version="1")
    check_budget_unspent({tmp_path / "store": "x"}, [other])
    with pytest.raises(OsoError, match="has runs on patients from when it was not public"):
        check_budget_unspent({tmp_path / "store": "x"}, [other, public])


@pytest.mark.parametrize("store", ["collected", "a part"])
def test_check_budget_unspent_missing_evaluations_raise(store, tmp_path) -> None:
    place = part(tmp_path / "made", "known", dataset="patients")
    if store == "collected":
        collect([place], tmp_path / "store")
        place = tmp_path / "store"
    places = {place: "x", part(tmp_path / "other", "more", dataset="patients"): "x"}
    mine = [planned("patients", "known", "more")]
    check_budget_unspent(places, mine)
    (place / "evaluations.parquet").rename(tmp_path / "gone")
    with pytest.raises(OsoError, match=f"^{place}: has 1 runs on patients without eval"):
        check_budget_unspent(places, mine)
    check_budget_unspent(places, [planned("patients", "known", "more", public=True)])
    whole = part(tmp_path / "again", "known", dataset="patients")
    check_budget_unspent({**places, whole: "x"}, mine)  # which a collection brings


@pytest.mark.parametrize("sizes", [(12, 5), (5, 12)])
def test_shared_budgets_takes_largest_count(sizes) -> None:
    names = ["patients", "patients", "glyphs"]
    rows = pd.DataFrame({"dataset": names, "budget_runs": [*sizes, None]})
    assert shared_budgets(rows) == {"patients": 12}


def test_shared_budgets_separates_datasets() -> None:
    names = ["patients", "pupils", "patients"]
    rows = pd.DataFrame({"dataset": names, "budget_runs": [12] * 3})
    assert shared_budgets(rows) == {"patients": 12, "pupils": 12}


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("differ", ["ledger", "value"])
def test_collect_conflicting_trainings_raise(differ, public, tmp_path) -> None:
    declared = {"data_version": "1", "randomness": "system"}
    declared |= {"budget_runs": None if public else 4}
    parts = []
    for place in range(2):
        row = run_row("one", dataset="patients", **options(**declared))
        if differ == "ledger" and place:
            row = {**row, "status": "diverged", "diverged_at": row["steps"]}
        row["run_id"] = make_run_id(row)
        value = 0.5 + 0.1 * place if differ == "value" else 0.5
        parts.append(tmp_path / f"{place}")
        scores = [evaluation_row(row["run_id"], value=value)]
        write_table(parts[-1] / "evaluations.parquet", "evaluations", scores)
        write_table(parts[-1] / "runs.parquet", "runs", [row])
    said_of_it = "measured twice" if public else "trained twice on private data; both"
    with pytest.raises(OsoError, match=said_of_it):
        collect(parts, tmp_path / "store")


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("where", ["device", "commit", "code_hash"])
def test_collect_retrained_private_run_raises(where, public, tmp_path) -> None:
    """A private run that was trained twice raises; equal rows that are collected twice do not."""
    declared = {"data_version": "1", "randomness": "system"}
    declared |= {"budget_runs": None if public else 4}
    row = run_row(
        "one", dataset="patients", status="diverged", diverged_at=1, **options(**declared)
    )
    row["run_id"] = make_run_id(row)
    parts = [tmp_path / "first", tmp_path / "second"]
    for place, other in zip(parts, (row, {**row, where: "another"}), strict=True):
        write_table(place / "evaluations.parquet", "evaluations", [])
        write_table(place / "runs.parquet", "runs", [other])
    store = tmp_path / "store"
    for _ in range(2):
        assert len(collect(parts[:1], store).runs) == 1
    if public:
        assert len(collect(parts, store).runs) == 1
        return
    with pytest.raises(OsoError, match="trained twice on private data; both"):
        collect(parts, store)
