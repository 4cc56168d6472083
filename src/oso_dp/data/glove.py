"""GloVe word vectors (Pennington, Socher and Manning 2014): 6B tokens, 50 dimensions.

They are read from the official text file, from its archive, or from a subset of its lines. A line
is a word and its 50 numbers, separated by single spaces.
"""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oso_dp.data.catalogue import DIMENSIONS
from oso_dp.data.download import (
    WrongContentError,
    download,
    read_up_to,
    unpacked,
    verify,
)
from oso_dp.data.sources import GLOVE_ARCHIVE, GLOVE_TEXT
from oso_dp.errors import OsoError
from oso_dp.files import check_regular, format_os_error

SUBSET = "glove.6B.50d.subset.txt"
NAMES = {  # file names by vocabulary; the first that exists is used
    "complete": (f"{GLOVE_TEXT.name}.gz", GLOVE_TEXT.name, GLOVE_ARCHIVE.files[0].name),
    "subset": (f"{SUBSET}.gz", SUBSET),
}
FOLDERS = {"complete": ("glove", "glove_complete", ""), "subset": ("glove", "")}


@dataclass(frozen=True, eq=False)
class GloveVectors:
    """Vectors float32 [1 + words, 50], row 0 all zeros; `index` maps words to rows from 1."""

    values: npt.NDArray[np.float32]
    index: dict[str, int]


def load_vectors(data_dir: Path | None, cache: Path, vocabulary: str) -> tuple[GloveVectors, dict]:
    """Return the vectors of a vocabulary and their provenance.

    Args:
        data_dir: Folder with the file, directly or in its subfolder glove/ (complete: also
            glove_complete/). None: download the archive to `cache` unless it is there.
        cache: Folder for the downloaded archive.
        vocabulary: "complete" (all 400,000 words) or "subset" (no public source).

    Raises:
        OsoError: For a missing, damaged or wrong file.
    """
    if data_dir is None and vocabulary == "subset":
        raise OsoError(f"vocabulary: subset; needs data_dir, with {SUBSET}")
    if data_dir is None:
        download(GLOVE_ARCHIVE, cache)
        path = cache / GLOVE_ARCHIVE.files[0].name
    else:
        path = _find(data_dir, vocabulary)
    try:
        content = _read(path)
        vectors = parse_vectors(content, str(path))
        complete = vocabulary == "complete"
        if complete:
            verify([content], GLOVE_TEXT)
    except WrongContentError as error:
        raise OsoError(
            f"{path}: {error}; must be {GLOVE_TEXT.name} as published, sha256 {GLOVE_TEXT.sha256}; "
            f"name a subset of it {SUBSET}"
        ) from error
    return vectors, {
        "origin": str(path),
        "sha256": hashlib.sha256(content).hexdigest(),  # of the uncompressed text
        "words": len(vectors.index),
        "complete": complete,
    }


def find_vectors(data_dir: Path, vocabulary: str) -> tuple[Path, bytes]:
    """The file that `load_vectors` reads, and its uncompressed text, not verified."""
    path = _find(data_dir, vocabulary)
    return path, _read(path)


def parse_vectors(content: bytes, name: str) -> GloveVectors:
    """Parse GloVe's text format; `name` is for messages.

    Raises OsoError, with the line, for a word that is not UTF-8, missing or duplicated, and for
    anything but 50 finite numbers.
    """
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    lines = min(lines, len(content) // (2 * DIMENSIONS) + 1)  # bound by the shortest valid line
    values = np.zeros((1 + lines, DIMENSIONS), np.float32)
    index: dict[str, int] = {}
    for line, text in enumerate(io.BytesIO(content), start=1):
        word, *numbers = text.split(b" ")
        if len(numbers) != DIMENSIONS:
            raise OsoError(
                f"{name}: line {line}: {len(numbers)} numbers after the word; must be {DIMENSIONS}"
            )
        try:
            key = word.decode()
            with np.errstate(over="ignore"):  # becomes infinite, and is rejected below
                values[line] = [float(number) for number in numbers]
        except UnicodeDecodeError as error:
            raise OsoError(f"{name}: line {line}: not UTF-8 ({error.reason})") from None
        except ValueError as error:
            raise OsoError(f"{name}: line {line}: {format_os_error(error)}") from None
        if index.setdefault(key, line) != line or not key:
            problem = f"word {key!r} also appears in line {index[key]}" if key else "missing word"
            raise OsoError(f"{name}: line {line}: {problem}")
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise OsoError(f"{name}: line {broken[0]}: number is not finite")
    if not index:
        raise OsoError(f"{name}: empty; must have lines of a word and {DIMENSIONS} numbers")
    return GloveVectors(values, index)


def _find(data_dir: Path, vocabulary: str) -> Path:
    for folder in FOLDERS[vocabulary]:
        for name in NAMES[vocabulary]:
            if os.path.exists(data_dir / folder / name):
                return data_dir / folder / name
    raise OsoError(
        f"data_dir: {data_dir}; no word vectors ({vocabulary} vocabulary) here or in "
        f"{', '.join(f'{folder}/' for folder in FOLDERS[vocabulary] if folder)}; add one of "
        f"{', '.join(NAMES[vocabulary])}"
    )


def _read(path: Path) -> bytes:
    """The uncompressed text, truncated if it is larger than the official file."""
    limit = GLOVE_TEXT.size + 1
    check_regular(path)
    try:
        if path.suffix != ".zip":
            return unpacked(read_up_to(path, limit), limit)
        with zipfile.ZipFile(path) as archive, archive.open(GLOVE_TEXT.name) as member:
            return member.read(limit)
    except KeyError:
        raise OsoError(f"{path}: does not contain {GLOVE_TEXT.name}") from None
    except WrongContentError:
        raise
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise OsoError(f"{path}: cannot read file ({format_os_error(error)})") from error
