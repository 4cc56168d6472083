"""Runs of another search are seen before training, in however many parts and folders they lie."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.campaign.conftest import STUDY
from tests.planned_rows import rows_of

from oso_dp.campaign import prepare as module
from oso_dp.errors import OsoError
from oso_dp.results.other_search import refuse_other_search_among
from oso_dp.results.write import write_table
from oso_dp.study.config import parse_config
from oso_dp.study.plan import Plan, plan_of, write_plan

N = 9


def planned(**more) -> Plan:
    """A search of N points, of one seed."""
    shared = {"methods": {"online": {}}, "granularities": [N], "seeds": [0]}
    return plan_of(parse_config({**STUDY, **shared, **more}, "x"), defaultdict(lambda: 1.5))


OTHER = planned(grid={"log10_learning_rate": [-1.1, 0.9]})
(WHOLE,) = planned().cohorts
ONE_POINT = WHOLE.with_runs(WHOLE.points[:1], WHOLE.seeds)  # as `select: paper_best` plans


def parts(folder: Path, first: int, end: int) -> list[Path]:
    """These of the other search's runs, in a part each, as a campaign on a CPU leaves them."""
    made = []
    rows = rows_of(OTHER)
    for number, run in enumerate(rows["runs"][first:end], first):
        made.append(folder / f"{OTHER.cohorts[0].name}.{number:012x}")
        mine = [row for row in rows["evaluations"] if row["run_id"] == run["run_id"]]
        write_table(made[-1] / "runs.parquet", "runs", [run])
        write_table(made[-1] / "evaluations.parquet", "evaluations", mine)
    return made


# Up to which of the other search's runs each of three folders has them.
LAID_OUT = [(9, 9, 9), (0, 9, 9), (0, 0, 9), (5, 9, 9), (1, 2, 9), (0, 4, 9)]


@pytest.mark.parametrize("ends", LAID_OUT, ids=str)
def test_all_parts_of_all_folders_are_one_search(ends, tmp_path) -> None:
    """None of them alone holds a point too much."""
    folders = [tmp_path / name for name in "abc"]
    among = {
        folder: parts(folder, *places)
        for folder, places in zip(folders, pairwise((0, *ends)), strict=True)
    }
    holding = [folder for folder, stores in among.items() if stores]
    where = " and ".join(map(str, holding))
    said = rf"^{where}: holds 9 points of another search of {WHOLE.name}, "
    with pytest.raises(OsoError, match=said):
        refuse_other_search_among(among, [ONE_POINT])
    among[holding[-1]].pop()  # with eight there is room for this one
    refuse_other_search_among(among, [ONE_POINT])


def test_folders_that_hold_the_very_search_are_not_named(tmp_path) -> None:
    own = tmp_path / "own"
    for kind, rows in rows_of(replace(OTHER, cohorts=(ONE_POINT,))).items():
        write_table(own / f"{kind}.parquet", kind, rows)
    among = {own: [own], tmp_path / "other": parts(tmp_path / "other", 0, N)}
    with pytest.raises(OsoError, match=rf"^{tmp_path}/other: holds 9 points of another search"):
        refuse_other_search_among(among, [ONE_POINT])


@pytest.mark.parametrize("inside", [N, 4, 0])
def test_a_campaign_does_not_add_to_another_search(inside, tmp_path, call, monkeypatch) -> None:
    """Whether its own folder holds the runs, or one that is named with --have, or both do."""
    out, have = tmp_path / "out", tmp_path / "have"
    parts(out, 0, inside)
    last = [*parts(have, inside, N), *out.glob("*")][0]
    write_plan(replace(OTHER, cohorts=(ONE_POINT,)), tmp_path / "plan.json")
    asked = ["--minutes", 1, "--results", out, "--plan", tmp_path / "plan.json"]
    asked += ["--have", have] if inside < N else []

    def enough(*_: object) -> None:
        raise OsoError("nothing was refused")

    monkeypatch.setattr(module, "Parts", enough)
    status, _, (said,) = call(*asked)
    assert (status, "9 points of another search of glyphs.online.k9.eps3" in said) == (2, True)
    (last / "runs.parquet").unlink()
    assert "nothing was refused" in call(*asked)[2][0]
