"""What editors and people are told of a configuration: the schema's file, and config/README.md."""

import json
import re
from dataclasses import fields

import pytest

from oso_dp.methods import find_method, method_names
from oso_dp.study.strict_yaml import read_yaml

jsonschema = pytest.importorskip("jsonschema")  # Snakemake brings it


@pytest.fixture(scope="module")
def validator(repo):
    schema = json.loads((repo / "workflow/schemas/config.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture
def smoke(repo) -> dict:
    return read_yaml((repo / "config/ci/smoke.yaml").read_text(encoding="utf-8"), "smoke")


@pytest.mark.parametrize(
    ("wrong", "at"),
    [
        ({"methods": {"onlin": {}}}, "onlin"),
        ({"methods": {"auto_s": {"stabilizer": 2}}}, "stabilizer"),
        ({"methods": {"auto_dog": {"scale": 0}}}, "or equal to the minimum of 0"),
        ({"delta": 1}, "or equal to the maximum of 1"),
        ({"batch_size": 0}, "less than the minimum of 1"),
        ({"seeds": [-1]}, "less than the minimum of 0"),
    ],
)
def test_what_is_wrong_is_wrong_in_an_editor(validator, smoke, wrong, at) -> None:
    (error,) = validator.iter_errors({**smoke, **wrong})
    assert at in error.message


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
