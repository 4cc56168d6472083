"""What people are told of a configuration: config/README.md."""

import re
from dataclasses import fields

from oso_dp.methods import find_method, method_names


def test_people_are_told_every_configuration(repo) -> None:
    text = (repo / "config/README.md").read_text(encoding="utf-8")
    files = [path for path in (repo / "config").rglob("*.yaml") if not path.is_symlink()]
    names = [str(path.relative_to(repo / "config")) for path in files]
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_people_are_told_every_method_its_settings_and_their_defaults(repo) -> None:
    text = (repo / "config/README.md").read_text(encoding="utf-8")
    table = text.partition("Options of the methods")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    said = {name: cell for names, cell in lines for name in re.findall(r"`(\w+)`", names)}
    assert sorted(said) == method_names()
    for name, cell in said.items():
        names = {one.name: one.default for one in fields(find_method(name).Options)}
        if not names:
            assert cell.strip() == "none"
        shared = re.findall(r"those of `(\w+)`", cell)
        told = {**_told(cell)}
        for other in shared:
            told = {**_told(said[other]), **told}
        assert set(told) == set(names), name
        for setting, default in told.items():
            if isinstance(default, float) and "fixed at 0" not in cell:
                assert default == names[setting], (name, setting)


def _told(cell: str) -> dict[str, float | None]:
    """Each setting, with its default where a number stands for it."""
    parts = re.findall(r"`(\w+)`([^(`]*\(([^)`]*)\)| \()", cell)
    return {
        name: float(default) if re.fullmatch(r"[\d.e-]+", default) else None
        for name, _, default in parts
    }
