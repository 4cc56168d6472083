"""Names in files that others wrote lead to no place outside of the folder that is worked in."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from oso_dp.data.arrays import is_arrays_file
from oso_dp.data.glove import load_vectors
from oso_dp.errors import OsoError
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .test_readers import STUDY

LEADING_OUT = ["../outside", "/outside", "a/../../outside", "..", ".", "a/b", "a\\b\0", "", "~"]
TEXT = b"the" + b" 0.5" * 50 + b"\n"


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


def digest(value: Any) -> str:
    """As whoever writes a plan by hand would make it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def unharmed(place: Path) -> bool:
    outside = place.parent / "outside"
    names = sorted(path.name for path in place.parent.iterdir())
    return names == ["inside", "outside"] and outside.read_text() == "untouched"


@pytest.mark.parametrize(
    "key", ["name", "cohort", "dataset", "method", "search_accounting", "model"]
)
def test_a_plan_with_right_digests_names_no_other_place(key, place) -> None:
    config = parse_config(read_yaml(STUDY.decode(), "x"), "x")
    path = place / "plan.json"
    write_plan(
        make_plan_with_noise(config, {f"glyphs.online.k2.eps{e}": 1.0 for e in ("3", "0.1")}), path
    )
    sound = json.loads(path.read_text())
    first = dict(sound["cohorts"][0])
    assert first.pop("digest") == digest(first)  # else nothing would be looked at but digests
    for name in LEADING_OUT:
        content = json.loads(json.dumps(sound))
        entry = content["cohorts"][0]
        if key == "name":
            content["name"] = name
        else:
            entry["name" if key == "cohort" else key] = name
        entry["digest"] = digest({k: v for k, v in entry.items() if k != "digest"})
        head = {k: v for k, v in content.items() if k not in ("version", "digest", "cohorts")}
        content["digest"] = digest([head, [one["digest"] for one in content["cohorts"]]])
        path.write_text(json.dumps(content))
        with pytest.raises(OsoError, match=r"plan\.json"):
            read_plan(path)
    assert unharmed(place)


def test_an_archives_other_members_are_written_nowhere(place) -> None:
    with zipfile.ZipFile(place / "glove.6B.zip", "w") as archive:
        for name in (*filter(None, LEADING_OUT), "../glove.6B.50d.txt"):
            archive.writestr(name, TEXT)
    with pytest.raises(OsoError, match=r"does not contain glove\.6B\.50d\.txt"):
        load_vectors(place, place)
    with zipfile.ZipFile(place / "a.npz", "w") as archive:
        for name in ("train_inputs", "../outside"):
            archive.writestr(f"{name}.npy", TEXT)
    assert not is_arrays_file(place / "a.npz")
    assert unharmed(place)
    assert sorted(path.name for path in place.iterdir()) == ["a.npz", "glove.6B.zip"]


@pytest.mark.parametrize("method", [0, 8, 12, 14])
def test_a_damaged_archive_of_any_method_is_one_line(method, place) -> None:
    path = place / "glove.6B.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("glove.6B.50d.txt", TEXT * 50)
    whole = path.read_bytes()
    for at in range(46, len(whole) - 120, max(7, len(whole) // 60)):
        path.write_bytes(whole[:at] + b"\xa5" * 4 + whole[at + 4 :])
        with pytest.raises(OsoError, match=r"glove\.6B\.zip: "):
            load_vectors(place, place)
