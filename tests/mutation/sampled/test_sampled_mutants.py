"""The tool for mechanical mutants: names that last, a history in order, tests for each file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import groups
import history
from mutants import mutant, places

sys.path.pop(0)

CODE = '''"""A file."""

LIMIT = 3


class Counter:
    """Counts."""

    start: int = 1

    @property
    def next(self) -> int | None:
        """The next one."""
        return self.start + 1


def below(x: int) -> bool:
    # A comment.
    return x < LIMIT
'''


def named(path: Path) -> dict[tuple[str, str], set[str]]:
    """Names of all mutants, by function and its content."""
    found: dict[tuple[str, str], set[str]] = {}
    for place in places(path):
        made = mutant(place)
        if made is not None:
            found.setdefault((made.function, made.content), set()).add(made.name)
    return found


def test_mutants_moved_function_keeps_names(tmp_path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "deep" / "second.py"
    second.parent.mkdir()
    first.write_text(CODE)
    head, counter, below = CODE.partition("class")[0], "class", CODE.split("class")[1]
    counter += below.split("\n\ndef below")[0]
    below = "def below" + below.split("def below")[1]
    head = head.replace("LIMIT", "import os\nfrom pathlib import Path\n\nLIMIT")
    moved = below.replace("# A comment.", "# Another one.").replace("x: int", "x: float")
    second.write_text(f"{head}def more():\n    return 7\n\n\n{moved}\n\n{counter}")
    before, after = named(first), named(second)
    assert len(before) == 4
    for part, names in before.items():
        if part[0]:  # what stands outside of functions has one function more in its file
            assert after[part] == names


def test_mutants_changed_function_content_differs(tmp_path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(CODE)
    second.write_text(CODE.replace("x < LIMIT", "x < LIMIT - 1"))
    before, after = named(first), named(second)
    changed = {part for part in before if part not in after}
    assert {function for function, _ in changed} == {"below"}


def test_history_written_again_unchanged(tmp_path) -> None:
    rows = history.read()
    history.write(rows, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == history.HISTORY.read_text()


@pytest.mark.parametrize("outcome", ["lost", "equivalent"])
def test_history_invalid_outcome_rejected(outcome, tmp_path) -> None:
    row = dict.fromkeys(history.COLUMNS, "") | {"mutant": "m", "outcome": outcome}
    history.write({"m": row}, tmp_path / "history.csv")
    with pytest.raises(ValueError, match=outcome):
        history.read(tmp_path / "history.csv")


def test_history_score_interval_matches_wilson() -> None:
    rows = [{"outcome": name} for name in ("killed", "timeout", "survived", "equivalent")]
    assert history.score(rows) == (2, 1, 1)
    # Wilson's, as in Brown, Cai and DasGupta 2001; and where everything was killed.
    assert history.interval(97, 3) == pytest.approx((0.9155, 0.9897), abs=1e-4)
    assert history.interval(10, 0) == pytest.approx((0.7225, 1.0), abs=1e-4)


@pytest.mark.parametrize("path", groups.mutated(), ids=lambda path: path.stem)
def test_groups_mutated_files_have_tests(path: Path) -> None:
    if path.stem != "__init__":
        assert groups.tests_of(path)


def test_groups_most_specific_path_wins() -> None:
    assert {groups.group_of(path) for path in groups.mutated()} == set(groups.GROUPS)
    assert groups.group_of(groups.CODE / "oso_dp/analysis/accounts.py") == "accounting"


def test_groups_named_paths_exist() -> None:
    code = [part for parts in groups.GROUPS.values() for part in parts] + list(groups.BY_NAME)
    assert [name for name in code if not (groups.CODE / "oso_dp" / name).exists()] == []
    tests = [name for names in groups.BY_NAME.values() for name in names]
    assert [name for name in tests if not list(groups.TESTS.glob(name))] == []


def test_groups_cover_packages_except_paper() -> None:
    packages = {path.parent.name for path in (groups.CODE / "oso_dp").glob("*/__init__.py")}
    named = {part.partition("/")[0] for parts in groups.GROUPS.values() for part in parts}
    assert packages - named == {"paper"}  # tables of numbers
