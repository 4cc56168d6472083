"""Fixtures of the data room: tiny MNIST-like sources, the official files, no network."""

import gzip
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests

from oso_dp.data.download import DatasetSource, Fetched, SourceFile
from oso_dp.locks import LOCK

IDX_CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def encode_idx(array: np.ndarray) -> bytes:
    """Write an IDX file as the format's description says, independently of the reader."""
    head = struct.pack(
        f">BBBB{array.ndim}I", 0, 0, IDX_CODES[array.dtype.name], array.ndim, *array.shape
    )
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@dataclass
class Tiny:
    """A source with the form of MNIST and a few examples, and its files' content by name."""

    source: DatasetSource
    content: dict[str, bytes]

    def write(self, folder: Path, compressed: bool = True) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.content.items():
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        return folder


def make_tiny(mirrors: tuple[str, ...] = (), **changed: np.ndarray) -> Tiny:
    rng = np.random.default_rng(0)
    arrays = {
        "train_images": rng.integers(256, size=(5, 4, 3), dtype=np.uint8),
        "train_labels": np.array([3, 1, 4, 0, 5], np.uint8),
        "t10k_images": rng.integers(256, size=(2, 4, 3), dtype=np.uint8),
        "t10k_labels": np.array([9, 2], np.uint8),
    } | changed
    content = {name: encode_idx(array) for name, array in arrays.items()}
    files = tuple(
        SourceFile(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in content.items()
    )
    return Tiny(DatasetSource("tiny", files, mirrors), content)


def contents(fetched: dict[str, Fetched]) -> dict[str, bytes]:
    return {name: file.content for name, file in fetched.items()}


def kept(folder: Path) -> dict[str, bytes]:
    """What a folder holds, but for its lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK}


@pytest.fixture(scope="session", name="encode_idx")
def _encode_idx():
    return encode_idx


@pytest.fixture(scope="session", name="make_tiny")
def _make_tiny():
    return make_tiny


@pytest.fixture
def tiny() -> Tiny:
    return make_tiny()


@pytest.fixture(autouse=True)
def opened(monkeypatch) -> list[str]:
    """Keep every test off the network and list the URLs that were asked for."""
    urls: list[str] = []
    real = requests.get

    def guarded(url, **options):
        urls.append(url)
        assert url.startswith("http://127.0.0.1:"), f"{url} is on the network"
        return real(url, **options)

    monkeypatch.setattr(requests, "get", guarded)
    monkeypatch.setenv("no_proxy", "*")
    return urls
