"""The page on one's own model: its lines run as they stand; its tables name every argument."""

import inspect
import re

import pytest

import oso_dp
from oso_dp.api.options import TrainingOptions
from oso_dp.training.schedule_and_averaging import CONSTANT


@pytest.fixture
def page(repo) -> str:
    return (repo / "docs/user/train_your_model.md").read_text(encoding="utf-8")


def test_its_lines_run_and_what_they_say_is_true(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    snippet, search = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(snippet.strip().splitlines()) <= 16
    names: dict = {}
    exec(snippet, names)
    trained = names["trained"]
    assert capsys.readouterr().out == f"{trained.statement}\n"
    assert 2.99 < trained.epsilon <= 3
    back = oso_dp.load_private("model.oso", names["model"])
    assert back.statement == trained.statement
    exec(search, names)
    made = names["search"]
    assert capsys.readouterr().out == f"{made.point} {made.score} {made.score_std}\n" + (
        f"{made.best.statement}\n"
    )
    assert 0.001 < made.score_std < 0.01
    assert 2.99 < made.best.epsilon <= 3


def test_every_argument_is_there_with_its_default(page) -> None:
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
