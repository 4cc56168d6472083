"""What the packaging files must not say."""

import re
from pathlib import Path

import pytest

PACKAGING = [
    "Makefile",
    "requirements.in",
    "requirements.lock",
    "environment.yml",
    "environment.post-deploy.sh",
    "pyproject.toml",
    "scripts/update_lockfile.sh",
    ".ci/run",
    "CITATION.cff",
    "MANIFEST.in",
]
# A build of torch, an address, or a folder that only some machines have.
PARTICULAR = "|".join(
    [
        r"\+cpu|\+cu\d",
        r"https?://|file:/|--(?:extra-)?index-url|--find-links",
        r"(?<![\w.])/(?:home|mnt|opt|root|srv|tmp|Users)/",
    ]
)


@pytest.mark.parametrize("name", PACKAGING)
def test_packaging_is_bound_to_no_machine_index_or_build(repo: Path, name: str) -> None:
    text = (repo / name).read_text()
    assert [m[0] for m in re.finditer(PARTICULAR, text)] == []


def test_licence_is_the_one_declared(repo: Path) -> None:
    text = (repo / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
