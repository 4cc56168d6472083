"""Faults of networks, data and probes that the tests of their room once did not see."""

from fault import Fault, of_kind

_LAYERS = "tests/models/test_layers.py"
_COSINE, _SIGNS = "tests/probe/test_cosine.py", "tests/probe/test_signs.py"

OVERLOOKED_MODELS = [
    *of_kind(
        "reported",
        Fault(
            "MNIST's network has another nonlinearity than Table 5",
            "models/cnn.py",
            "nn.Conv2d(1, 16, 8, padding=3),\n        nn.ReLU(),",
            "nn.Conv2d(1, 16, 8, padding=3),\n        nn.LeakyReLU(),",
            _LAYERS,
        ),
        Fault(
            "AG News's network has another nonlinearity than Table 7",
            "models/bag_of_words.py",
            "nn.Linear(inputs, 128),\n        nn.LeakyReLU(),",
            "nn.Linear(inputs, 128),\n        nn.ReLU(),",
            _LAYERS,
        ),
        Fault(
            "the autoencoder's way back leaks more than its way in",
            "models/autoencoder.py",
            "layers += [back, nn.LeakyReLU()]",
            "layers += [back, nn.LeakyReLU(0.2)]",
            _LAYERS,
        ),
        Fault(
            "the glyphs' test part is drawn from some of the fonts",
            "data/glyphs.py",
            "test = _draw(digits, info",
            "test = _draw(digits[:9], info",
            "tests/data/test_glyphs.py",
        ),
        Fault(
            "the true gradient leaves out the last few examples",
            "probe/cosine.py",
            "for part in batch.split(_BATCH):",
            "for part in batch.split(_BATCH)[: max(1, len(batch) // _BATCH)]:",
            _COSINE,
        ),
        Fault(
            "the data's gradient is that of the first step",
            "probe/cosine.py",
            "if self.whole is None or self.whole[0] != step:",
            "if self.whole is None:",
            _COSINE,
        ),
        Fault(
            "a cosine's deviation is over n",
            "probe/cosine.py",
            "values.std(ddof=1)",
            "values.std(ddof=0)",
            _COSINE,
        ),
        Fault(
            "gradients two steps apart are one step apart",
            "probe/signs.py",
            "releases[-3].true[0])",
            "releases[-2].true[0])",
            _SIGNS,
        ),
        Fault(
            "rows' gradients go back to turned images",
            "models/flatten.py",
            "images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)",
            "images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 2, 1)",
            "tests/models/test_flatten.py",
        ),
    ),
]
