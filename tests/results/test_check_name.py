"""A name that is read from a file never becomes a path out of a folder."""

from dataclasses import replace

import pytest

from oso_dp.errors import OsoError
from oso_dp.files import check_name
from oso_dp.results.collect import collect
from oso_dp.results.read import read_results
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan, read_plan, write_plan

from .conftest import part

PATHS = ["../../x", "/x", "a/b", "..", ".x", "", "a b", "a\n", "a\\b", "ä", "$(x)", "-x", "x" * 151]


@pytest.mark.parametrize("name", PATHS)
def test_check_name_invalid_name_raises(name) -> None:
    with pytest.raises(OsoError, match=r"^here: dataset: .*must be a name of letters") as error:
        check_name(name, "here: dataset")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("column", ["dataset", "method", "search_accounting"])
@pytest.mark.parametrize("name", PATHS[:4])
def test_read_results_path_names_raise(tmp_path, column, name) -> None:
    folder = part(tmp_path / "part", "r1", **{column: name})
    before = sorted(tmp_path.rglob("*"))
    for read in (read_results, lambda folder: collect([folder], tmp_path / "store")):
        with pytest.raises(OsoError, match=rf"part/runs\.parquet: {column}: '"):
            read(folder)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("change", [{"dataset": "../../x"}, {"k": "9/../../x"}])
def test_read_plan_path_names_raise(repo, tmp_path, monkeypatch, change) -> None:
    plan = make_plan(load_config(repo / "config/ci/smoke.yaml"))
    monkeypatch.setattr("oso_dp.study.plan.check_name", lambda name, where: None)
    cohort = replace(plan.cohorts[0], **change)
    write_plan(replace(plan, cohorts=(cohort,)), tmp_path / "plan.json")
    monkeypatch.undo()
    with pytest.raises(OsoError, match=r"plan\.json: cohort: '.*must be a name"):
        read_plan(tmp_path / "plan.json")
