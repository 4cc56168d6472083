"""Small files that unfold to something huge, or name other places: refused, nothing written."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from oso_dp.analysis.side_measurements import read_vocabulary_coverage
from oso_dp.data.arrays import is_arrays_file
from oso_dp.data.glove import load_vectors
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.scheduler.priorities import read_priorities
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .test_readers import STUDY

MEMORY = 100 << 20  # bytes more than before; less than the bombs unfold to
DEEP = [
    "[" * 3_000 + "]" * 3_000,
    '{"a":' * 100_000,
    '{"cohorts":' * 5_000 + "1" + "}" * 5_000,
    "a = " + "[" * 100_000,
    "[[first]]\na = " + "[" * 3_000 + "]" * 3_000,
    "9" * 100_000,
    '{"version": ' + "9" * 5_000 + "}",
]


def configuration(text: str) -> None:
    parse_config(read_yaml(text, "x"), "x")


def of_file(read):
    def from_text(text: str, folder: Path) -> None:
        (folder / "vocabulary_coverage.json").write_text(text)
        read(folder / "vocabulary_coverage.json")

    return from_text


READERS = {
    "ledger": lambda text, folder: Ledger.from_json(text),
    "configuration": lambda text, folder: configuration(text),
    "plan": of_file(read_plan),
    "facts": of_file(lambda path: read_vocabulary_coverage(path.parent)),
    "priorities": of_file(lambda path: read_priorities(path, [])),
}


@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.parametrize("number", range(len(DEEP)))
def test_readers_deep_nesting_rejected(reader, number, tmp_path):
    with pytest.raises(OsoError):
        READERS[reader](DEEP[number], tmp_path)


# Those that could fill the memory are read by a process that has little.


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines) + f"\nname: *a{levels - 1}\nseeds: *a{levels - 1}\n"


def merges(levels: int) -> str:
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}")
    return "\n".join(lines) + f"\nmethods: *a{levels - 1}\n"


def yaml_file(text: str) -> tuple[str, str, bytes]:
    return ("from oso_dp.study.config import load_config as read", "a.yaml", text.encode())


def idx(*sides: int) -> bytes:
    return bytes([0, 0, 8, len(sides)]) + b"".join(side.to_bytes(4, "big") for side in sides)


def npy(shape: str, kind: str = "<f4") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head


def npz(method: int, **entries: bytes) -> bytes:
    from io import BytesIO

    whole = {name: npy("(1,)") for name in ("train_inputs", "test_inputs", "train_targets")}
    whole |= {"test_targets": npy("(1,)"), "provenance": npy("()", "<U2")} | entries
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in whole.items():
            archive.writestr(f"{name}.npy", content)
    return packed.getvalue()


PARSE = "from oso_dp.data.{0} import parse_{1} as parse\ndef read(p): parse(p.read_bytes(), str(p))"
LOAD = "from oso_dp.data.arrays import load_arrays as read"
SAY = "from oso_dp.data.arrays import read_provenance as read"
HUGE = 1 << 27
BOMBS = {
    "a billion laughs": lambda: yaml_file(laughs(9)),
    "merged mappings": lambda: yaml_file(merges(9)),
    "endless": lambda: yaml_file("a: &a [*a, *a]\nname: *a\n"),
    "2^31 images": lambda: (PARSE.format("mnist", "idx"), "a", idx(2**31, 28, 28)),
    "2^64 images of nothing": lambda: (
        PARSE.format("mnist", "idx"),
        "a",
        idx(2**32 - 1, 2**32 - 1, 0),
    ),
    "lines without words": lambda: (PARSE.format("glove", "vectors"), "a", b"\n" * (4 << 20)),
    "2^40 numbers": lambda: (LOAD, "a.npz", npz(0, train_inputs=npy(f"({2**40},)"))),
    "a long text": lambda: (SAY, "a.npz", npz(0, provenance=npy("()", "<U999999999"))),
    "packed numbers": lambda: (
        *(LOAD, "a.npz"),
        npz(8, train_inputs=npy(f"({HUGE},)", "|i1") + bytes(HUGE)),
    ),
    "a packed text": lambda: (
        *(SAY, "a.npz"),
        npz(8, provenance=npy("()", f"<U{HUGE // 4}") + bytes(HUGE)),
    ),
}
CHILD = """
import resource, sys
from pathlib import Path
from oso_dp.errors import OsoError
{reader}
import numpy, yaml
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {memory}, used + {memory}))
try:
    read(Path(sys.argv[1]))
except OsoError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("bomb", sorted(BOMBS))
def test_readers_memory_bombs_rejected(bomb, tmp_path):
    reader, name, content = BOMBS[bomb]()
    (tmp_path / name).write_bytes(content)
    child = CHILD.format(reader=reader, memory=MEMORY)
    done = subprocess.run(
        [sys.executable, "-c", child, tmp_path / name], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("refused: ")
    assert "MemoryError" not in done.stdout
    assert done.stdout.count("\n") == 1


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
def test_read_plan_outside_path_rejected(key, place) -> None:
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


def test_load_vectors_archive_members_not_extracted(place) -> None:
    with zipfile.ZipFile(place / "glove.6B.zip", "w") as archive:
        for name in (*filter(None, LEADING_OUT), "../glove.6B.50d.txt"):
            archive.writestr(name, TEXT)
    with pytest.raises(OsoError, match=r"does not contain glove\.6B\.50d\.txt"):
        load_vectors(place, place, "complete")
    with zipfile.ZipFile(place / "a.npz", "w") as archive:
        for name in ("train_inputs", "../outside"):
            archive.writestr(f"{name}.npy", TEXT)
    assert not is_arrays_file(place / "a.npz")
    assert unharmed(place)
    assert sorted(path.name for path in place.iterdir()) == ["a.npz", "glove.6B.zip"]


@pytest.mark.parametrize("method", [0, 8, 12, 14])
def test_load_vectors_damaged_archive_rejected(method, place) -> None:
    path = place / "glove.6B.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("glove.6B.50d.txt", TEXT * 50)
    whole = path.read_bytes()
    for at in range(46, len(whole) - 120, max(7, len(whole) // 60)):
        path.write_bytes(whole[:at] + b"\xa5" * 4 + whole[at + 4 :])
        with pytest.raises(OsoError, match=r"glove\.6B\.zip: "):
            load_vectors(place, place, "complete")
