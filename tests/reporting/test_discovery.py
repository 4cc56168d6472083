"""Tables and figures are found in their packages; two of one name are refused."""

import sys

import pytest

from oso_dp import OsoError
from oso_dp.reporting.discovery import check_distinct, find_modules


@pytest.fixture
def package(tmp_path, monkeypatch) -> str:
    folder = tmp_path / "found_here"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in {
        "a_late": "ORDER = 20\ndef figures(study): ...",
        "b_unplaced": "def figures(study): ...",
        "c_early": "ORDER = 10\ndef figures(study): ...",
        "helper": "ORDER = 0",
    }.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder.name
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def test_find_modules_sorted_by_order(package, tmp_path) -> None:
    found = find_modules(package, [str(tmp_path / package)], "figures")
    names = [module.__name__.split(".")[1] for module in found]
    assert names == ["c_early", "a_late", "b_unplaced"]


def test_check_distinct_duplicate_name_raises() -> None:
    check_distinct("table", ["runs", "claims"])
    with pytest.raises(OsoError, match=r"^report: two tables have the name 'runs'; rename one"):
        check_distinct("table", ["runs", "claims", "runs"])
