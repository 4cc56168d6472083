"""IDX files, and the data sets that come in them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oso_dp.data import mnist, prepare_dataset
from oso_dp.data.arrays import load_arrays
from oso_dp.data.mnist import parse_idx
from oso_dp.errors import OsoError


def test_mnist_build_reads_source_exactly(tiny, tmp_path):
    folder = tiny.write(tmp_path / "local")
    arrays, provenance = mnist.build(folder, tmp_path / "cache", tiny.source)
    raw = np.frombuffer(tiny.content["train_images"][16:], np.uint8).reshape(5, 1, 4, 3)
    np.testing.assert_array_equal(np.rint(arrays.train_inputs * 255), raw)
    raw = np.frombuffer(tiny.content["t10k_images"][16:], np.uint8).reshape(-1, 1, 4, 3)
    np.testing.assert_array_equal(np.rint(arrays.test_inputs * 255), raw)
    assert arrays.train_inputs.shape == (5, 1, 4, 3)
    assert arrays.train_inputs.min() >= 0
    assert arrays.train_inputs.max() <= 1
    assert arrays.train_targets.tolist() == [3, 1, 4, 0, 5]
    assert arrays.test_targets.tolist() == [9, 2]
    assert provenance["files"]["t10k_labels"] == {
        "sha256": tiny.source.files[3].sha256,
        "origin": str(folder / "t10k_labels.gz"),
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": np.zeros((5, 12), np.uint8)}, r"train_images\.gz: .*uint8 images"),
        ({"t10k_labels": np.zeros(2, np.int32)}, r"t10k_labels\.gz: int32.*uint8 labels"),
        ({"t10k_labels": np.zeros(3, np.uint8)}, "2 examples, test_targets: 3"),
    ],
)
def test_mnist_build_mismatched_file_rejected(make_tiny, tmp_path, changed, message):
    tiny = make_tiny(**changed)
    with pytest.raises(OsoError, match=message):
        mnist.build(tiny.write(tmp_path), tmp_path / "cache", tiny.source)


# Mean and deviation that everyone who normalises them knows; the digest of the stored runs.
OFFICIAL = {
    "mnist": (0.1307, 0.3081, "6f12a89c96cbbe16d05d56d083954ef9"),
    "fashion_mnist": (0.2860, 0.3530, "87579021a257c7a8ea336ee3a53b3a44"),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_prepare_dataset_official_files_match_digest(name, shared, tmp_path, opened):
    output = tmp_path / f"{name}.npz"
    prepare_dataset(name, output, shared / "data")
    arrays, provenance = load_arrays(output)
    output.unlink()  # 220 MB
    mean, deviation, digest = OFFICIAL[name]
    assert arrays.train_inputs.shape == (60_000, 1, 28, 28)
    assert arrays.test_inputs.shape == (10_000, 1, 28, 28)
    assert arrays.train_inputs.mean(dtype=np.float64) == pytest.approx(mean, abs=5e-5)
    assert arrays.train_inputs.std(dtype=np.float64) == pytest.approx(deviation, abs=5e-5)
    assert arrays.digest.startswith(digest)
    assert (arrays.train_inputs.min(), arrays.train_inputs.max()) == (0, 1)
    assert (provenance["dataset"], len(provenance["files"])) == (name, 4)
    assert opened == []


DTYPES = st.sampled_from(["uint8", "int8", "int16", "int32", "float32", "float64"])
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))


@given(array=ARRAYS)
def test_parse_idx_encoded_array_read_back(encode_idx, array):
    read = parse_idx(encode_idx(array), "x")
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


@given(array=ARRAYS, data=st.data())
def test_parse_idx_truncated_file_rejected(encode_idx, array, data):
    content = encode_idx(array)
    keep = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(OsoError, match=r"some-file: (truncated|not an IDX)"):
        parse_idx(content[:keep], "some-file")
