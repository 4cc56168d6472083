"""What the source must not do: run what it reads, read without limits, believe the wall's clock."""

import ast
import re
from pathlib import Path

import pytest

# Calls by their last name, and what makes one of them harmless.
REFUSED = {
    **dict.fromkeys(("eval", "exec", "read_pickle", "to_pickle", "extract", "extractall"), None),
    **dict.fromkeys(("unpack_archive", "unsafe_load", "full_load", "load_all"), None),
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "yaml.load": None,
    "yaml.compose": ("Loader", "yaml.SafeLoader"),
    "os.system": None,
    # The clock of the wall jumps; what lasts is measured by time.monotonic or time.perf_counter.
    **dict.fromkeys(("time.time", "time.time_ns", "now", "utcnow", "today"), None),
}
MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}


def offences(text: str) -> list[str]:
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names}
            names |= {(getattr(node, "module", None) or "").split(".")[0]}
            lines += [f"{node.lineno}: {name}" for name in names & MODULES]
        if isinstance(node, ast.Attribute) and node.attr in ("st_mtime", "st_ctime"):
            lines.append(f"{node.lineno}: {node.attr}")
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called if called in REFUSED else called.rpartition(".")[2]
        # A method of our own may be called so, as torch's Module.eval.
        if name not in REFUSED or (name in ("eval", "exec") and "." in called):
            continue
        harmless = REFUSED[name]
        given = {one.arg: ast.unparse(one.value) for one in node.keywords}
        if harmless is None or given.get(harmless[0]) != str(harmless[1]):
            lines.append(f"{node.lineno}: {called}")
    return lines


def sources(repo: Path) -> list[Path]:
    paths = [*(repo / "src").rglob("*.py"), *(repo / "benchmarks").rglob("*.py")]
    return [*paths, *(repo / "scripts").rglob("*.py")]


def test_sources_unsafe_calls_absent(repo):
    lines = [f"{path.name}:{line}" for path in sources(repo) for line in offences(path.read_text())]
    assert lines == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval(text)",
        "archive.extractall(folder)",
        "time.time()",
        "path.stat().st_mtime",
    ],
)
def test_offences_unsafe_call_found(text):
    assert len(offences(text)) == 1


def test_workflow_rules_wall_clock_unused(repo):
    for path in (repo / "Snakefile", *(repo / "workflow/rules").glob("*.smk")):
        assert not re.search(r"\btime\.time\b|st_mtime\b|datetime", path.read_text()), path
