"""Commands of the pages exist with these options and files; those of seconds run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.docs.pages import commands, pages
from typer.testing import CliRunner

from oso_dp.cli.commands import app

QUICK = ("calibrate", "epsilon")


@pytest.fixture(scope="module")
def texts(repo: Path) -> dict[str, str]:
    """Each page but the changelog, which keeps old names."""
    known = {str(page.relative_to(repo)): page.read_text(encoding="utf-8") for page in pages(repo)}
    del known["CHANGELOG.md"]
    return known


def command_options(group: Any, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command, subcommands as `group command`, with its options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from command_options(command, f"{prefix}{name} ")
        yield prefix + name, {option for one in command.params for option in one.opts}


def test_oso_commands_exist_with_options(texts) -> None:
    known = dict(command_options(typer.main.get_command(app)))
    unknown, named = [], set()
    for page, text in texts.items():
        for line in commands(text, "oso"):
            if line.startswith("-"):
                continue
            name = max(
                (one for one in known if f"{line} ".startswith(f"{one} ")), key=len, default=""
            )
            named.add(name)
            options = {word.partition("=")[0] for word in line.split() if re.match(r"--\w", word)}
            if not options <= known.get(name, set()) | {"--help"} or not name:
                unknown.append(f"{page}: oso {line}")
    assert unknown == []
    assert {"calibrate", "plan", "report", "audit"} <= named


def test_make_targets_exist(repo: Path, texts) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*?## ", (repo / "Makefile").read_text(), re.M))
    named = [(page, line.split()[0]) for page in texts for line in commands(texts[page], "make")]
    assert [(page, target) for page, target in named if target not in targets] == []
    assert len(named) > 20


def test_files_of_commands_exist(repo: Path, texts) -> None:
    missing = []
    for page, text in texts.items():
        for program in ("snakemake", "python", "oso", "pytest", "PYTHONPATH=src python"):
            for line in commands(text, program):
                for word in re.findall(
                    r"(?:config|examples|tests|benchmarks|workflow)/[\w/.]+", line
                ):
                    if not (repo / word).exists():
                        missing.append(f"{page}: {word}")
    assert missing == []


def test_quick_commands_run(texts, repo: Path, monkeypatch) -> None:
    monkeypatch.chdir(repo)
    lines = {line for text in texts.values() for line in commands(text, "oso")}
    whole = [line for line in sorted(lines) if line.startswith(QUICK) and "--examples" in line]
    assert len(whole) >= 3
    for line in whole:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, f"oso {line}: {done.output}"
