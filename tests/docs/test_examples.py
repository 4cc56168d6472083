"""The examples of the pages run, and what they say is true."""

import inspect
import math
import re
import subprocess
import sys
import tomllib
from types import ModuleType

import numpy as np
import pytest
from tests.docs.pages import FENCED

import oso_dp
from oso_dp.analysis.study_statement import make_planned_statements
from oso_dp.api.options import TrainingOptions
from oso_dp.data import prepare_dataset
from oso_dp.data.plugins import GROUP, find_plugin
from oso_dp.data.validation import load_prepared
from oso_dp.labels import method_label
from oso_dp.privacy.queries import QUERIES, PlainGradient
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan
from oso_dp.training.job import run_job
from oso_dp.training.schedule_and_averaging import CONSTANT
from oso_dp.training.study_problem import check_user_model


@pytest.fixture
def page(repo) -> str:
    return (repo / "docs/user/train_your_model.md").read_text(encoding="utf-8")


def test_train_your_model_snippets_run(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    snippet, optimizer, search = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(snippet.strip().splitlines()) <= 16
    names: dict = {}
    exec(snippet, names)
    trained = names["trained"]
    assert capsys.readouterr().out == f"{trained.statement}\n"
    assert 2.99 < trained.epsilon <= 3
    back = oso_dp.load_private("model.oso", names["model"])
    assert back.statement == trained.statement
    exec(optimizer, names)
    assert 2.99 < names["trained"].epsilon <= 3
    exec(search, names)
    made = names["search"]
    assert capsys.readouterr().out == f"{made.point} {made.score} {made.score_std}\n" + (
        f"{made.best.statement}\n"
    )
    assert 0.001 < made.score_std < 0.01
    assert 2.99 < made.best.epsilon <= 3


def test_train_your_model_arguments_match_signature(page) -> None:
    train, search = (
        inspect.signature(made).parameters for made in (oso_dp.train_private, oso_dp.search_private)
    )
    parameters = {**search, **train}
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", page, re.M))))
    besides = {"model", "method_options", "training", "seed"}
    assert named == parameters.keys() - besides
    simple = ("method", "accountant", "randomness", "learning_rate", "progress")
    simple += ("search_accounting", "stopping_distribution")
    usual = {name: parameters[name].default for name in simple}
    usual |= {"momentum": TrainingOptions.momentum, "schedule": CONSTANT}
    for name, default in usual.items():
        (row,) = re.findall(rf"^\| `{name}` .*\| `?(.*?)`? \|$", page, re.M)
        assert row == str(default)


def test_user_level_snippet_protects_users(repo, capsys) -> None:
    page = (repo / "docs/user/user_level.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict = {}
    exec(block, names)
    trained, text = names["trained"], capsys.readouterr().out
    assert "Protected: one user" in text
    assert "of 300 users" in text
    assert 3.9 < trained.epsilon <= 4
    outputs = trained.model(names["inputs"]).argmax(dim=1)
    assert (outputs == names["targets"]).float().mean() > 0.9


def test_pate_snippet_gives_stated_epsilon(repo, capsys) -> None:
    page = (repo / "docs/user/pate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict = {}
    exec(block, names)
    labels, answered = names["result"].labels, names["labelled"]
    assert 15 < answered.sum() <= 40
    assert (labels == names["targets"][1500:1600])[answered].mean() > 0.5
    assert "labels of" in capsys.readouterr().out
    assert f"Epsilon is {math.ceil(100 * names['result'].epsilon) / 100:.2f}" in page


@pytest.fixture(scope="module")
def text(repo) -> str:
    return (repo / "docs/internals/add_a_method.md").read_text(encoding="utf-8")


TRAINED = """
import sys
import torch
import oso_dp
import oso_dp.methods
from oso_dp.methods import find_method

oso_dp.methods.__path__.append(sys.argv[1])
assert find_method("pasted").title == "Pasted"
torch.manual_seed(1)
data = torch.randn(60, 3), torch.randint(2, (60,))
options = {"delta": 1e-5, "epochs": 2, "batch_size": 30, "randomness": "seeded", "seed": 1}
runs = [
    oso_dp.train_private(
        torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(reduction="none"), data, epsilon=3.0,
        method=name, stabiliser=0.02, learning_rate=0.5, progress=False, **options,
    )
    for name in ("pasted", "auto_s")
]
assert all(run.epsilon <= 3 and run.ledger.step_count == 4 for run in runs)
assert [run.statement.method for run in runs] == ["pasted", "auto_s"]
"""


def test_add_a_method_snippet_trains(text, tmp_path) -> None:
    (block,) = FENCED.finditer(text)
    named = block["lines"].replace('"auto_s"', '"pasted"').replace('"AUTO-S"', '"Pasted"')
    (tmp_path / "pasted.py").write_text(named)
    command = [sys.executable, "-W", "error", "-c", TRAINED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_add_a_method_lists_queries(text) -> None:
    for query in set(QUERIES) - {PlainGradient}:
        assert f"| `{query.__name__}` |" in text


def test_add_a_method_named_files_exist(repo, text) -> None:
    assert "auto_s" in load_config(repo / "config/extensions/other_methods.yaml").methods
    for name in re.findall(r"`((?:src|tests|config|workflow)/[\w./-]+)`", text):
        assert (repo / name).exists(), name


@pytest.fixture
def dataset_page(repo) -> str:
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


def test_your_dataset_files_equal_example(dataset_page, repo) -> None:
    folder = repo / "examples/breast_cancer"
    names = {"toml": "pyproject.toml", "python": "oso_breast_cancer.py", "yaml": "study.yaml"}
    for language, name in names.items():
        (block,) = re.findall(rf"```{language}\n(.*?)```", dataset_page, re.S)
        assert block == (folder / name).read_text(encoding="utf-8")


def test_your_dataset_arguments_match_signature(dataset_page) -> None:
    parameters = inspect.signature(oso_dp.UserDataset).parameters
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| ?`?(.*?)`? ?\|$", dataset_page, re.M))
    assert rows.keys() == parameters.keys()
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty
        assert rows[name] == ("" if required else str(parameter.default))


def test_your_dataset_example_has_one_epsilon(example, dataset_page, tmp_path) -> None:
    check_user_model("breast_cancer")
    prepare_dataset("breast_cancer", tmp_path / "data.npz")
    plan = make_plan(load_config(example / "study.yaml"))
    (statement,) = make_planned_statements(plan.cohorts)
    assert 7.99 < statement.epsilon <= 8
    said = re.findall(r"^\| (\w+) \| (\d+) \| [\d.]+ ± [\d.]+ \|$", dataset_page, re.M)
    runs = {method_label(cohort.method): len(cohort.runs) for cohort in plan.cohorts}
    assert {method: int(number) for method, number in said} == runs
    assert f"for all {sum(runs.values())} runs together" in dataset_page
    cohort = plan.cohorts[0]
    arrays = load_prepared(tmp_path / "data.npz", cohort.dataset, cohort.preparation)
    rows = run_job(cohort, cohort.runs[:2], arrays, tmp_path / "job")
    assert [row["status"] for row in rows.runs] == ["finished"] * 2
    assert {row["examples"] for row in rows.runs} == {455}
    assert all(np.isfinite(row["value"]) for row in rows.evaluations)
