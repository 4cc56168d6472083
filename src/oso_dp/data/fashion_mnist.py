"""Fashion-MNIST: 28 x 28 images of clothing (Xiao, Rasul and Vollgraf 2017), in MNIST's format.

The paper trains an autoencoder on it (metric `mse`, targets are the images). The data file has the
labels as targets; nothing trains on them.
"""

from pathlib import Path

from oso_dp.data import mnist
from oso_dp.data.arrays import Arrays
from oso_dp.data.download import DatasetSource, SourceFile

SOURCE = DatasetSource(
    dataset="fashion_mnist",
    files=(
        SourceFile(
            "train-images-idx3-ubyte",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        SourceFile(
            "train-labels-idx1-ubyte",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        SourceFile(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        SourceFile(
            "t10k-labels-idx1-ubyte",
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
)


def build(data_dir: Path | None, cache: Path) -> tuple[Arrays, dict]:
    """As `oso_dp.data.mnist.build`: inputs [n, 1, 28, 28] in [0, 1], targets 0 to 9."""
    return mnist.build(data_dir, cache, SOURCE)
