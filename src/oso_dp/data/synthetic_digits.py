"""Glyphs: a synthetic data set of small digit images, rendered from matplotlib's fonts.

It needs no files and no network. It resembles MNIST but is not MNIST, and its results are not
comparable with the paper's. Each example is a digit of one font, randomly shifted, rotated and
scaled, with noise. The seed is fixed; values are rounded to 256 levels, so that floating-point
differences between machines do not change the arrays.
"""

from io import BytesIO
from pathlib import Path

import numpy as np

from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError

SEED = 14
SIDE = 14  # image width and height, pixels
HEIGHT = 9.5  # height of an unscaled digit, pixels
ZOOM = 2  # rendered pixels, and sampling points, per image pixel along one side
CANVAS = 64  # width and height of a rendered digit's canvas; contains the corners of any image

SHIFT = 1.0  # maximum in each direction, pixels
TURN = 12.0  # maximum rotation in both directions, degrees
SCALE = (0.85, 1.1)
INK = (0.7, 1.0)  # brightness of the digit
NOISE = (0.02, 0.12)  # standard deviation of each pixel's noise

# Those of matplotlib's fonts that have upright or slanted lining digits; the others have
# mathematical symbols, old-style figures or placeholders.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10"),
)


def build(data_dir: Path | None = None, cache: Path | None = None) -> tuple[Arrays, dict]:
    """Return the arrays, inputs [n, 1, 14, 14], and their provenance.

    The arguments are not used. Raises OsoError if a font is missing from matplotlib's folder.
    """
    import matplotlib
    import PIL

    info = DATASETS["glyphs"]
    digits = render_digits(Path(matplotlib.get_data_path()) / "fonts" / "ttf")
    rng = np.random.default_rng(SEED)
    train = _draw(digits, info.examples, rng)
    test = _draw(digits, info.test_examples, rng)
    provenance = {
        "made_from": "digits rendered from matplotlib's fonts; not MNIST",
        "seed": SEED,
        "fonts": list(FONTS),
        "versions": {
            "matplotlib": matplotlib.__version__,
            "numpy": np.__version__,
            "pillow": PIL.__version__,
        },
    }
    return Arrays(*train, *test), provenance


def render_digits(folder: Path) -> np.ndarray:
    """Render each digit in each font of `folder`: float32 [fonts, 10, CANVAS, CANVAS] in [0, 1].

    A digit is centred in its canvas; zeros have equal height in all fonts.
    """
    from PIL import Image, ImageDraw, ImageFont

    trial_size = 100.0
    digits = np.zeros((len(FONTS), 10, CANVAS, CANVAS), np.float32)
    for index, name in enumerate(FONTS):
        path = folder / f"{name}.ttf"
        try:
            # Given a path, pillow would fall back to system fonts of this name; without a layout
            # engine, it would use a shaping library, if installed. Neither must change the pixels.
            font = ImageFont.truetype(
                BytesIO(path.read_bytes()), trial_size, layout_engine=ImageFont.Layout.BASIC
            )
        except OSError as error:
            raise OsoError(
                f"{path}: cannot read font; glyphs needs the fonts of matplotlib's package "
                "(pip install --force-reinstall matplotlib)"
            ) from error
        _, top, _, bottom = font.getbbox("0")
        font = font.font_variant(size=trial_size * HEIGHT * ZOOM / (bottom - top))
        for digit in range(10):
            canvas = Image.new("L", (2 * CANVAS, 2 * CANVAS))
            ImageDraw.Draw(canvas).text((CANVAS, CANVAS), str(digit), fill=255, font=font)
            cut = canvas.crop(canvas.getbbox())
            middle = Image.new("L", (CANVAS, CANVAS))
            middle.paste(cut, ((CANVAS - cut.width) // 2, (CANVAS - cut.height) // 2))
            digits[index, digit] = np.asarray(middle, np.float32) / 255
    return digits


def _draw(
    digits: np.ndarray, examples: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw random examples: inputs float32 [n, 1, SIDE, SIDE] and targets int64 [n]."""
    targets = rng.integers(10, size=examples)
    fonts = rng.integers(len(digits), size=examples)
    shift = rng.uniform(-SHIFT, SHIFT, (examples, 2))
    turn = np.deg2rad(rng.uniform(-TURN, TURN, examples))
    scale = rng.uniform(*SCALE, examples)
    ink = rng.uniform(*INK, (examples, 1, 1))
    noise = rng.uniform(*NOISE, (examples, 1, 1)) * rng.standard_normal((examples, SIDE, SIDE))

    images = np.empty((examples, SIDE, SIDE))
    for start in range(0, examples, 500):  # a few MB at a time
        part = slice(start, start + 500)
        images[part] = _warp(
            digits[fonts[part], targets[part]], shift[part], turn[part], scale[part]
        )
    levels = np.rint(np.clip(ink * images + noise, 0, 1) * 255)
    return (levels / 255).astype(np.float32)[:, np.newaxis], targets


def _warp(
    canvases: np.ndarray, shift: np.ndarray, turn: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Apply an affine map to each canvas: [n, CANVAS, CANVAS] to [n, SIDE, SIDE].

    Each pixel is the mean of ZOOM x ZOOM bilinearly interpolated points.
    """
    n, points = len(canvases), SIDE * ZOOM
    axis = (np.arange(points) + 0.5) / ZOOM - SIDE / 2  # pixels from the centre of the image
    y = axis[np.newaxis, :, np.newaxis] - shift[:, 0, np.newaxis, np.newaxis]
    x = axis[np.newaxis, np.newaxis, :] - shift[:, 1, np.newaxis, np.newaxis]
    cos = (np.cos(turn) * ZOOM / scale)[:, np.newaxis, np.newaxis]
    sin = (np.sin(turn) * ZOOM / scale)[:, np.newaxis, np.newaxis]
    # From image coordinates to canvas coordinates, where the first pixel's centre is at 0.
    row = (cos * y - sin * x) + (CANVAS - 1) / 2
    column = (sin * y + cos * x) + (CANVAS - 1) / 2

    top = np.clip(np.floor(row).astype(int), 0, CANVAS - 2)
    left = np.clip(np.floor(column).astype(int), 0, CANVAS - 2)
    down, right = row - top, column - left
    image = np.arange(n)[:, np.newaxis, np.newaxis]
    upper = (1 - right) * canvases[image, top, left] + right * canvases[image, top, left + 1]
    lower = (1 - right) * canvases[image, top + 1, left] + right * canvases[
        image, top + 1, left + 1
    ]
    values = (1 - down) * upper + down * lower
    return values.reshape(n, SIDE, ZOOM, SIDE, ZOOM).mean(axis=(2, 4))
