"""The published files of every data set: size, SHA-256 of the content, mirrors."""

from oso_dp.data.download import DatasetSource, SourceFile

MNIST = DatasetSource(
    dataset="mnist",
    files=(
        SourceFile(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        SourceFile(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        SourceFile(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        SourceFile(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
)
QMNIST = DatasetSource(
    dataset="qmnist",
    files=(
        SourceFile(
            "qmnist-train-labels-idx2-int",
            1_920_012,
            "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
        ),
    ),
    mirrors=("https://raw.githubusercontent.com/facebookresearch/qmnist/master",),
)
FASHION_MNIST = DatasetSource(
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
_AG_NEWS_TEST = SourceFile(
    "test.csv",
    1_857_427,
    "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
)
AG_NEWS = DatasetSource(
    dataset="ag_news",
    files=(
        SourceFile(
            "train.csv",
            29_470_338,
            "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
        ),
        _AG_NEWS_TEST,
    ),
    mirrors=("https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv",),
    suffix="",
)
AG_NEWS_PARTIAL = DatasetSource(
    dataset="ag_news",
    files=(
        SourceFile(
            "train_partial.csv",
            15_656_295,
            "bf92bcaeb6b0bbc323c87bd713dd6bfa32968a6fbd8a40cc6540924112e9491d",
        ),
        _AG_NEWS_TEST,
    ),
    mirrors=(),  # local files only
)
GLOVE_TEXT = SourceFile(
    "glove.6B.50d.txt",
    171_350_079,
    "d8f717f8dd4b545cb7f418ef9f3d0c3e6e68a6f48b97d32f8b7aae40cb31f96f",
)
GLOVE_ARCHIVE = DatasetSource(
    dataset="glove",
    files=(
        SourceFile(
            "glove.6B.zip",
            862_182_613,
            "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
        ),
    ),
    mirrors=("https://nlp.stanford.edu/data", "https://downloads.cs.stanford.edu/nlp/data"),
    suffix="",
)
