"""Fashion-MNIST: 28 x 28 images of clothing (Xiao, Rasul and Vollgraf 2017), in MNIST's format.

The paper trains an autoencoder on it (metric `mse`, targets are the images), the data set
`fashion_mnist`; `fashion_mnist_labels` is the same data file with the labels as targets.
"""

from pathlib import Path

from oso_dp.data import mnist
from oso_dp.data.arrays import Arrays
from oso_dp.data.sources import FASHION_MNIST


def build(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """As `oso_dp.data.mnist.build`: inputs [n, 1, 28, 28] in [0, 1], targets 0 to 9."""
    return mnist.build(data_dir, cache, FASHION_MNIST)
