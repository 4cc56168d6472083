import numpy as np
import pytest

from oso_dp.data import prepare_dataset
from oso_dp.data.arrays import load_arrays
from oso_dp.data.sources import FASHION_MNIST, MNIST
from oso_dp.errors import OsoError


def test_the_official_files_give_the_known_arrays(shared, tmp_path, opened):
    output = tmp_path / "fashion_mnist.npz"
    prepare_dataset("fashion_mnist", output, shared / "data")
    arrays, provenance = load_arrays(output)
    output.unlink()  # 220 MB
    assert arrays.train_inputs.shape == (60_000, 1, 28, 28)
    assert arrays.test_inputs.shape == (10_000, 1, 28, 28)
    # Figures that everyone who normalises Fashion-MNIST knows.
    assert arrays.train_inputs.mean(dtype=np.float64) == pytest.approx(0.2860, abs=5e-5)
    assert arrays.train_inputs.std(dtype=np.float64) == pytest.approx(0.3530, abs=5e-5)
    # Of every number of them, as the stored runs had them.
    assert arrays.digest.startswith("87579021a257c7a8ea336ee3a53b3a44")
    assert np.bincount(arrays.train_targets).tolist() == [6000] * 10
    assert np.bincount(arrays.test_targets).tolist() == [1000] * 10
    assert (arrays.train_inputs.min(), arrays.train_inputs.max()) == (0, 1)
    assert provenance["dataset"] == "fashion_mnist"
    assert opened == []


def test_mnists_files_which_are_called_the_same_are_refused(official_mnist, tmp_path):
    assert [file.name for file in FASHION_MNIST.files] == [file.name for file in MNIST.files]
    with pytest.raises(OsoError, match=r"train-images-idx3-ubyte\.gz: wrong file .*fashion_mnist"):
        prepare_dataset("fashion_mnist", tmp_path / "x.npz", official_mnist)
    assert list(tmp_path.iterdir()) == []
