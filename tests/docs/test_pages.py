"""Links, commands, names and snippets of the pages."""

import ast
import csv
import importlib
import importlib.util
import json
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from tests.docs.pages import FENCED, commands, pages
from typer.testing import CliRunner

import oso_dp
from oso_dp import exit_codes, opacus
from oso_dp.cli.commands import app
from oso_dp.labels import dataset_label, method_label

LINK = re.compile(r"\]\((?!\w+:)(?P<target>[^)#\s]*)(?:#(?P<anchor>[^)]*))?\)")


def anchors(page: Path) -> set[str]:
    """As both GitHub and the site derive them from headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s", "-", text) for text in plain}


def test_pages_links_resolve(repo: Path) -> None:
    astray, followed = [], 0
    for page in pages(repo):
        for link in LINK.finditer(page.read_text(encoding="utf-8")):
            followed += 1
            target = page.parent / link["target"] if link["target"] else page
            if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target)):
                astray.append(f"{page.relative_to(repo)}: {link[0]}")
    assert astray == []
    assert followed > 100


ROW = re.compile(r"^\| (.+) \| `([\w/]+)\.py` \| `([\w.]+)` \|$", re.MULTILINE)


@pytest.mark.parametrize("page", ["equations_to_code", "architecture"])
def test_internals_tables_name_existing_functions(page: str, repo: Path) -> None:
    rows = ROW.findall((repo / f"docs/internals/{page}.md").read_text(encoding="utf-8"))
    assert len(rows) > 20
    for _, file, name in rows:
        attrgetter(name)(importlib.import_module(f"oso_dp.{file.replace('/', '.')}"))


def test_internals_name_existing_files(repo: Path) -> None:
    named = r"`([a-z]\w*/[\w/]+\.py)`"
    for page in sorted((repo / "docs/internals").glob("*.md")):
        for file in re.findall(named, page.read_text(encoding="utf-8")):
            roots = (repo, repo / "src/oso_dp")
            assert any((root / file).exists() for root in roots), f"{page.name}: {file}"


def test_equations_to_code_lists_algorithm(repo: Path) -> None:
    text = (repo / "docs/internals/equations_to_code.md").read_text(encoding="utf-8")
    for number in (3, 4, 11, 13, 16, 17, 18, 19, 20, 21):
        assert f"({number})" in text, number
    assert "Proposition 1" in text


# Pages whose blocks have a test of their own, which looks at what comes out, too.
TESTED = {
    "docs/internals/add_a_method.md": "tests/docs/test_examples.py",
    "docs/user/train_your_model.md": "tests/docs/test_examples.py",
    "docs/user/user_level.md": "tests/docs/test_examples.py",
    "docs/user/pate.md": "tests/docs/test_examples.py",
}


def blocks(page: Path) -> list[str]:
    found = FENCED.finditer(page.read_text(encoding="utf-8"))
    return [block["lines"] for block in found if block["language"] == "python"]


def test_pages_python_blocks_run(repo: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    there = set()
    for page in pages(repo):
        name = str(page.relative_to(repo))
        if blocks(page):
            there.add(name)
        if name not in TESTED:
            for lines in blocks(page):
                exec(lines, {"__name__": "__main__"})
    assert there >= TESTED.keys()
    for name, test in TESTED.items():
        assert name in (repo / test).read_text(encoding="utf-8")


def test_quickstart_snippet_within_twelve_lines(repo: Path) -> None:
    (lines,) = blocks(repo / "docs/user/quickstart.md")
    assert len([line for line in lines.splitlines() if line.strip()]) <= 12


TROUBLE = re.compile(r"^\| `([^`]+)`(?: \(notice\))? \|", re.MULTILINE)


def template(node: ast.AST) -> str | None:
    """A text of the code, with … for what is filled in; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%s", "…", text)
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or "…" for part in parts)
    return None


@pytest.fixture(scope="module")
def templates(repo) -> str:
    texts = []
    for path in (repo / "src/oso_dp").rglob("*.py"):
        texts += [template(node) for node in ast.walk(ast.parse(path.read_text()))]
    return "\n".join(text for text in texts if text)


def test_troubleshooting_quotes_messages_of_code(repo: Path, templates) -> None:
    rows = TROUBLE.findall((repo / "docs/user/troubleshooting.md").read_text())
    assert len(rows) > 25
    assert [row for row in rows if row not in templates] == []


def test_troubleshooting_lists_exit_codes(repo: Path) -> None:
    text = (repo / "docs/user/troubleshooting.md").read_text()
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    known = {
        getattr(exit_codes, name) for name in ("SUCCESS", "ERROR", "INTERRUPTED", "BROKEN_PIPE")
    }
    assert listed == known | {1}


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


def test_pages_oso_commands_exist(texts) -> None:
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


def test_pages_make_targets_exist(repo: Path, texts) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*?## ", (repo / "Makefile").read_text(), re.M))
    named = [(page, line.split()[0]) for page in texts for line in commands(texts[page], "make")]
    assert [(page, target) for page, target in named if target not in targets] == []
    assert len(named) > 20


def test_pages_files_of_commands_exist(repo: Path, texts) -> None:
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


def test_pages_quick_commands_run(texts, repo: Path, monkeypatch) -> None:
    monkeypatch.chdir(repo)
    lines = {line for text in texts.values() for line in commands(text, "oso")}
    whole = [line for line in sorted(lines) if line.startswith(QUICK) and "--examples" in line]
    assert len(whole) >= 3
    for line in whole:
        done = CliRunner().invoke(app, shlex.split(line))
        assert done.exit_code == 0, f"oso {line}: {done.output}"


PUBLISHED = {"mnist": (1.23, 0.5, 512), "fashion_mnist": (2.15, 4.0, 2048)}


@pytest.fixture(scope="module")
def folder(repo: Path) -> Path:
    return repo / "docs/published"


@pytest.fixture(scope="module")
def script(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("published_runs", folder / "runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "runs.json").read_text())


def test_validation_rows_match_published_runs(folder: Path, script: ModuleType, repo: Path) -> None:
    accuracies: dict[str, list[float]] = {}
    for row in csv.DictReader((folder / "runs.csv").read_text().splitlines()):
        accuracies.setdefault(row["run"], []).append(100 * float(row["accuracy"]))
    assert set(accuracies) == set(script.RUNS)
    assert {len(values) for values in accuracies.values()} == {script.EPOCHS}
    page = (repo / "docs/reproduction/validation.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| MNIST", "| Fashion"))]
    expected = []
    for dataset, method in dict.fromkeys(run[:2] for run in script.RUNS.values()):
        seeds = [accuracies[f"{dataset} {method} {seed}"] for seed in range(3)]
        shown = [
            f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
            for values in ([seed[-1] for seed in seeds], [max(seed) for seed in seeds])
        ]
        names = [dataset_label(dataset), method_label(method)]
        expected.append(f"| {' | '.join([*names, *shown])} |")
    assert [row.rsplit("|", 2)[0] + "|" for row in rows] == expected


def test_published_runs_settings_match(
    script: ModuleType, kept: dict[str, dict[str, object]]
) -> None:
    assert set(kept) == set(script.RUNS)
    for run, (dataset, method, seed) in script.RUNS.items():
        own = kept[run]
        noise, rate, batch = PUBLISHED[dataset]
        assert (own["dataset"], own["method"], own["seed"]) == (dataset, method, seed)
        assert own["noise_multiplier"] == pytest.approx(noise, abs=5e-4)
        assert (own["batch_size"], own["epochs"], own["status"]) == (batch, 40, "finished")
        assert len(str(own["commit"])) == 40
        if method == "fixed_threshold":
            assert (own["learning_rate"], own["threshold"]) == (rate, 0.1)


@pytest.fixture(scope="module")
def site(repo: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_pages_and_links_reachable(site: Path) -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\sid="([^"]+)"', text)) for page, text in texts.items()}
    broken, reached = [], {site / "index.html", site / "404.html"}
    for page, text in texts.items():
        if page.name == "404.html":  # its links are for a server's root
            continue
        for link in re.findall(r'\s(?:href|src)="(?!\w+:|#|//)([^"]+)"', text):
            target, _, anchor = unquote(unescape(link)).partition("#")
            place = (page.parent / target).resolve()
            place = place / "index.html" if place.is_dir() else place
            reached.add(place)
            if not place.exists() or (anchor and anchor not in anchors.get(place, {anchor})):
                broken.append(f"{page.name}: {link}")
    assert broken == []
    assert texts.keys() - reached == set()


def test_site_public_names_have_entries(site: Path) -> None:
    library = (site / "api/library.html").read_text(encoding="utf-8")
    for name in oso_dp.__all__:
        assert f'id="oso_dp.{name}"' in library, name
    drop_in = (site / "api/opacus.html").read_text(encoding="utf-8")
    for name in opacus.__all__:
        assert f'id="oso_dp.opacus.{name}"' in drop_in, name


def test_site_arguments_become_parameter_tables(site: Path) -> None:
    page = (site / "api/library.html").read_text(encoding="utf-8")
    entry = page.partition('id="oso_dp.train_private"')[2].partition('id="oso_dp.PrivateModel"')[0]
    rows = re.findall(r"<tr class=\"doc-section-item\">.*?<code>(\w+)</code>", entry, re.S)
    assert {"model", "loss", "data", "epsilon", "delta", "microbatch_size"} <= set(rows)


def test_site_fetches_no_external_files(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page.name
