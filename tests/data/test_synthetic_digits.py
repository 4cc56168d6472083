from pathlib import Path

import matplotlib
import numpy as np
import pytest

from oso_dp.data import prepare_dataset, synthetic_digits
from oso_dp.data.arrays import load_arrays
from oso_dp.errors import OsoError

FOLDER = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("glyphs") / "glyphs.npz"
    prepare_dataset("glyphs", path)
    return path, *load_arrays(path)


def test_glyphs_prepared_twice_byte_identical(prepared, tmp_path):
    prepare_dataset("glyphs", tmp_path / "again.npz", tmp_path / "a data_dir is not looked at")
    assert (tmp_path / "again.npz").read_bytes() == prepared[0].read_bytes()


# Of the first test images' levels, 0 to 255: the first corner, which is noise, and a piece of ink.
CORNERS = [14, 0, 0, 0, 0, 0, 0, 0, 28, 8, 0, 23, 33, 15, 9, 5, 0, 0, 0, 16]
INK = [
    *([6, 6, 0, 2, 154, 82], [0, 12, 2, 108, 196, 139], [4, 77, 141, 22, 0, 0]),
    *([119, 101, 75, 140, 106, 0], [174, 112, 109, 215, 66, 0], [224, 131, 1, 83, 252, 197]),
    *([59, 0, 152, 179, 95, 21], [72, 188, 194, 187, 126, 4]),
]


def test_glyphs_images_match_pinned_values(prepared):
    levels = np.rint(255 * prepared[1].test_inputs[:, 0])
    assert levels[:20, 0, 0].tolist() == CORNERS
    ink = levels[: len(INK), 6, 4:10]
    assert np.abs(ink - INK).mean() < 1  # fonts are rendered alike up to a level or so
    assert prepared[1].test_targets[:12].tolist() == [5, 5, 1, 5, 5, 9, 4, 8, 1, 4, 0, 7]


def test_glyphs_examples_all_distinct(prepared):
    _, arrays, _ = prepared
    both = np.concatenate([arrays.train_inputs, arrays.test_inputs])
    assert len({image.tobytes() for image in both}) == 7000


def test_render_digits_missing_font_rejected(tmp_path):
    with pytest.raises(OsoError, match=rf"^{tmp_path}/DejaVuSans\.ttf: cannot read font"):
        synthetic_digits.render_digits(tmp_path)


def test_glyphs_parts_drawn_from_same_fonts(monkeypatch):
    digits, seen = np.zeros((len(synthetic_digits.FONTS), 10, 2, 2), np.float32), []

    def draw(given, examples, rng):
        seen.append((given, examples, rng))
        return np.zeros((examples, 1, 14, 14), np.float32), np.zeros(examples, np.int64)

    monkeypatch.setattr(synthetic_digits, "render_digits", lambda folder: digits)
    monkeypatch.setattr(synthetic_digits, "_draw", draw)
    synthetic_digits.build()
    (train, n, rng), (test, m, again) = seen
    assert train is test is digits
    assert (n, m) == (6000, 1000)
    assert rng is again
