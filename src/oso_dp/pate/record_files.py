"""Files of votes and labels: named arrays with the facts of what they are, in one .npz."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular, format_os_error, parse_json


def write_record(
    path: Path, kind: str, arrays: Mapping[str, npt.NDArray], facts: Mapping[str, Any]
) -> None:
    """Write the file atomically; `facts` must be serialisable as JSON."""
    with atomic_write(path) as file:
        text = json.dumps({"kind": kind, **facts}, sort_keys=True)
        entries: dict[str, Any] = {"facts": np.array(text), **arrays}
        np.savez_compressed(file, **entries)


def read_record(path: Path, kind: str) -> tuple[dict[str, npt.NDArray], dict[str, Any]]:
    """The arrays and the facts; OsoError for a file that is missing, damaged or of another kind."""
    check_regular(path)
    try:
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
            facts = parse_json(file["facts"].item())
            arrays = {name: file[name] for name in file.files if name != "facts"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise OsoError(f"{path}: not a file of {kind} ({format_os_error(error)})") from None
    if not isinstance(facts, dict) or facts.pop("kind", None) != kind:
        raise OsoError(f"{path}: not a file of {kind}")
    return arrays, facts


def is_record(kind: str) -> Any:
    """A predicate: whether a path is a file of this kind."""

    def is_one(path: Path) -> bool:
        try:
            read_record(path, kind)
        except OsoError:
            return False
        return True

    return is_one
