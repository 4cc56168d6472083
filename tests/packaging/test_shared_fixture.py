"""The `shared` fixture finds the data, skips without it, and fails where it is required."""

from pathlib import Path

import pytest
from tests.official_data import find_shared


@pytest.mark.parametrize(
    ("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_official_data_absent_skip_or_fail(tmp_path: Path, monkeypatch, required, outcome) -> None:
    (tmp_path / "shared").mkdir()  # a folder of that name need not be ours
    monkeypatch.setenv("OSO_TEST_SHARED", "")
    monkeypatch.setenv("OSO_REQUIRE_SHARED", required)
    with pytest.raises(outcome, match="no official data"):
        find_shared(tmp_path / "repo")
