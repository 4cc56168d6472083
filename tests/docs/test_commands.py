"""Commands that pages name are there, with these options; those of seconds run as they stand."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from tests.docs.pages import commands, pages
from typer.testing import CliRunner

from oso_dp.cli.commands import app

QUICK = ("calibrate", "epsilon")


@pytest.fixture(scope="module")
def texts(repo: Path) -> dict[str, str]:
    """Each page but the changelog, which tells of what was."""
    known = {str(page.relative_to(repo)): page.read_text(encoding="utf-8") for page in pages(repo)}
    del known["CHANGELOG.md"]
    return known


def test_every_command_of_oso_is_there_with_its_options(texts) -> None:
    known = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in typer.main.get_command(app).commands.items()
    }
    unknown, named = [], set()
    for page, text in texts.items():
        for line in commands(text, "oso"):
            name, *rest = line.split()
            if name.startswith("-"):
                continue
            named.add(name)
            options = {word.partition("=")[0] for word in rest if re.match(r"--\w", word)}
            if name not in known or not options <= known[name] | {"--help"}:
                unknown.append(f"{page}: oso {line}")
    assert unknown == []
    assert {"calibrate", "plan", "report", "audit"} <= named


def test_every_target_of_make_is_there(repo: Path, texts) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*?## ", (repo / "Makefile").read_text(), re.M))
    named = [(page, line.split()[0]) for page in texts for line in commands(texts[page], "make")]
    assert [(page, target) for page, target in named if target not in targets] == []
    assert len(named) > 40


def test_every_file_that_a_command_names_is_there(repo: Path, texts) -> None:
    absent = []
    for page, text in texts.items():
        for program in ("snakemake", "python", "oso", "pytest", "PYTHONPATH=src python"):
            for line in commands(text, program):
                for word in re.findall(
                    r"(?:config|examples|tests|benchmarks|workflow)/[\w/.]+", line
                ):
                    if not (repo / word).exists():
                        absent.append(f"{page}: {word}")
    assert absent == []


def test_commands_of_seconds_run_as_they_stand(texts, repo: Path, monkeypatch) -> None:
    monkeypatch.chdir(repo)
    lines = {line for text in texts.values() for line in commands(text, "oso")}
    whole = [line for line in sorted(lines) if line.startswith(QUICK) and "--examples" in line]
    assert len(whole) >= 3
    for line in whole:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, f"oso {line}: {done.output}"
