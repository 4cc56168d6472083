"""A figure in the page: SVG while that is small, a picture of its own size where it is not."""

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from oso_dp.reporting.figures import layout

SVG, WEBP = "data:image/svg+xml,", "data:image/webp;base64,"


def link(markers: int) -> str:
    with layout.theme():
        figure = Figure(figsize=(4, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(np.linspace(0, 1, markers), np.linspace(0, 1, markers) ** 2, marker="o")
        axes.set_title("at 0.316228 <0.123456>")
        layout.to_png(figure)
        return layout.to_link(figure)


@pytest.mark.parametrize("markers", [1, 2, 40])
def test_link_of_small_figure_is_svg(markers: int) -> None:
    source = link(markers)
    assert source.startswith(SVG)
    assert '"' not in source
    drawn = ElementTree.fromstring(unquote(source[len(SVG) :]))
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "at 0.316228 <0.123456>" in texts  # a number in a text keeps its digits
    places = " ".join(one.get("d", "") for one in drawn.iter())
    assert re.search(r"\.\d\d\b", places)
    assert not re.search(r"\.\d{3}", places)


def test_link_of_large_figure_is_picture() -> None:
    source = link(2000)
    assert source.startswith(WEBP)
    with Image.open(io.BytesIO(base64.b64decode(source[len(WEBP) :]))) as picture:
        assert picture.size == (4 * layout.PAGE_DPI, 3 * layout.PAGE_DPI)
        assert np.asarray(picture.convert("L")).min() < 100 < np.asarray(picture).max()
