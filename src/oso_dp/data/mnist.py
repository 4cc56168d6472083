"""MNIST: 28 x 28 images of handwritten digits (LeCun, Cortes and Burges)."""

from pathlib import Path

import numpy as np

from oso_dp.data.arrays import Arrays
from oso_dp.data.download import DatasetSource, Fetched, obtain
from oso_dp.data.idx import parse_idx
from oso_dp.data.sources import MNIST
from oso_dp.errors import OsoError


def build(data_dir: Path | None, cache: Path, source: DatasetSource = MNIST) -> tuple[Arrays, dict]:
    """Return the arrays and their provenance.

    Inputs are [n, 1, height, width], bytes divided by 255; targets are the labels. `source` may be
    any data set published as MNIST's four files. Raises OsoError as `oso_dp.data.download.obtain`,
    or if a file does not contain images or labels as expected.
    """
    fetched = obtain(source, data_dir, cache)
    train_images, train_labels, test_images, test_labels = (
        fetched[file.name] for file in source.files
    )
    arrays = Arrays(
        _images(train_images), _labels(train_labels), _images(test_images), _labels(test_labels)
    )
    files = {
        file.name: {"sha256": file.sha256, "origin": fetched[file.name].origin}
        for file in source.files
    }
    return arrays, {"files": files}


def _images(file: Fetched) -> np.ndarray:
    images = _bytes(file, ndim=3, content="images [n, height, width]")
    return images[:, np.newaxis].astype(np.float32) / np.float32(255)


def _labels(file: Fetched) -> np.ndarray:
    return _bytes(file, ndim=1, content="labels [n]").astype(np.int64)


def _bytes(file: Fetched, ndim: int, content: str) -> np.ndarray:
    values = parse_idx(file.content, file.origin)
    if values.dtype != np.uint8 or values.ndim != ndim:
        raise OsoError(
            f"{file.origin}: {values.dtype} {list(values.shape)}; must be uint8 {content}"
        )
    return values
