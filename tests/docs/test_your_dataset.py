"""docs/user/your_dataset.md: its files are the example's, its table is whole, its study runs."""

import inspect
import re
import sys
import tomllib
from types import ModuleType

import numpy as np
import pytest

import oso_dp
from oso_dp.analysis.study_statement import make_planned_statements
from oso_dp.data import prepare_dataset
from oso_dp.data.plugins import GROUP, find_plugin
from oso_dp.data.validation import load_prepared
from oso_dp.labels import method_label
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan
from oso_dp.training.job import run_job
from oso_dp.training.user_task import check_user_model


@pytest.fixture
def page(repo) -> str:
    return (repo / "docs/user/your_dataset.md").read_text(encoding="utf-8")


@pytest.fixture
def example(repo, tmp_path, monkeypatch):
    """The folder, as good as installed; scikit-learn has a stand-in where it is missing."""
    folder = repo / "examples/breast_cancer"
    declared = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    (point,) = declared["entry-points"][GROUP].items()
    known = tmp_path / "oso_breast_cancer-1.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: oso-breast-cancer\nVersion: 1\n")
    (known / "entry_points.txt").write_text(f"[{GROUP}]\n{' = '.join(point)}\n")
    monkeypatch.setattr(sys, "path", [str(folder), str(tmp_path), *sys.path])
    try:
        import sklearn.datasets  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
        monkeypatch.setitem(sys.modules, "sklearn.datasets", _stand_in())
    find_plugin.cache_clear()
    yield folder
    find_plugin.cache_clear()


def _stand_in() -> ModuleType:
    """As many numbers, of the same scale."""
    module = ModuleType("sklearn.datasets")

    def load_breast_cancer(return_X_y: bool) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        diagnoses = rng.integers(2, size=569)
        return rng.uniform(0, 0.02, (569, 30)) + 0.01 * diagnoses[:, None], diagnoses

    module.load_breast_cancer = load_breast_cancer  # type: ignore[attr-defined]
    return module


def test_its_files_are_those_of_the_example(page, repo) -> None:
    folder = repo / "examples/breast_cancer"
    names = {"toml": "pyproject.toml", "python": "oso_breast_cancer.py", "yaml": "study.yaml"}
    for language, name in names.items():
        (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.S)
        assert block == (folder / name).read_text(encoding="utf-8")


def test_every_argument_is_there_with_its_default(page) -> None:
    parameters = inspect.signature(oso_dp.UserDataset).parameters
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ?`?(.*?)`? ?\|$", page, re.M))
    assert rows.keys() == parameters.keys()
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty
        assert rows[name] == ("" if required else str(parameter.default))


def test_the_example_is_a_study_with_one_epsilon_and_trains(example, page, tmp_path) -> None:
    check_user_model("breast_cancer")
    prepare_dataset("breast_cancer", tmp_path / "data.npz")
    plan = make_plan(load_config(example / "study.yaml"))
    (statement,) = make_planned_statements(plan.cohorts)
    assert 7.99 < statement.epsilon <= 8
    said = re.findall(r"^\| (\w+) \| (\d+) \| [\d.]+ ± [\d.]+ \|$", page, re.M)
    runs = {method_label(cohort.method): len(cohort.runs) for cohort in plan.cohorts}
    assert {method: int(number) for method, number in said} == runs
    assert f"for all {sum(runs.values())} runs together" in page
    cohort = plan.cohorts[0]
    arrays = load_prepared(tmp_path / "data.npz", cohort.dataset, cohort.preparation)
    rows = run_job(cohort, cohort.runs[:2], arrays, tmp_path / "job")
    assert [row["status"] for row in rows.runs] == ["finished"] * 2
    assert {row["examples"] for row in rows.runs} == {455}
    assert all(np.isfinite(row["value"]) for row in rows.evaluations)
