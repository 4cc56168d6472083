"""The workflows of GitHub Actions call targets that the Makefile has."""

import re
from pathlib import Path

import yaml

EXPECTED = {
    "ci.yml": {"test", "lint", "docs"},
    "nightly.yml": {
        *("test-nightly", "test-slurm", "planted-faults", "mutation-sample", "fuzz"),
        *("test-dependency-range", "audit"),
    },
}


def called_targets(workflow: Path) -> set[str]:
    """Each `make X` of the steps, with the job's matrix filled in."""
    targets = set()
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            for call in re.findall(r"\bmake (\$\{\{.*?\}\}|\S+)", step.get("run", "")):
                name = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", call)
                targets |= set(matrix[name[1]]) if name else {call}
    return targets


def test_workflows_call_existing_targets(repo: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):.*?## ", (repo / "Makefile").read_text("utf-8"), re.M))
    called = {path.name: called_targets(path) for path in (repo / ".github/workflows").iterdir()}
    assert called == EXPECTED
    assert set().union(*called.values()) <= known
