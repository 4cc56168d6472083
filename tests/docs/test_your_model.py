"""The page on one's own model: its lines run as they stand, and its table names every argument."""

import inspect
import re

import pytest

import oso_dp


@pytest.fixture
def page(repo) -> str:
    return (repo / "docs/your-model.md").read_text(encoding="utf-8")


def test_its_lines_run_and_what_they_say_is_true(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(snippet.strip().splitlines()) <= 16
    names: dict = {}
    exec(snippet, names)
    trained = names["trained"]
    assert capsys.readouterr().out == f"{trained.statement}\n"
    assert 2.99 < trained.epsilon <= 3
    back = oso_dp.load_private("model.oso", names["model"])
    assert back.statement == trained.statement


def test_every_argument_is_there_with_its_default(page) -> None:
    parameters = inspect.signature(oso_dp.train_private).parameters
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", page, re.M))))
    assert named == parameters.keys() - {"model", "settings", "momentum", "seed", "progress"}
    for name in ("method", "accountant", "randomness", "learning_rate"):
        (row,) = re.findall(rf"^\| `{name}` .*\| `?(.*?)`? \|$", page, re.M)
        assert row == str(parameters[name].default)
