"""A figure in the page: SVG or a picture, whichever is smaller."""

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from oso_dp.reporting.figures import chart, files

SVG, WEBP = "data:image/svg+xml,", "data:image/webp;base64,"


def link(markers: int, form=files.to_link) -> str:
    with chart.theme():
        figure = Figure(figsize=(4, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(np.linspace(0, 1, markers), np.linspace(0, 1, markers) ** 2, marker="o")
        axes.set_title("at 0.316228 <0.123456>")
        files.to_png(figure)
        figure.set_layout_engine("none")  # as laid out
        return form(figure)


@pytest.mark.parametrize("markers", [1, 2, 40])
def test_to_svg_link_rounds_coordinates_only(markers: int) -> None:
    source = link(markers, files.to_svg_link)
    assert source.startswith(SVG)
    assert '"' not in source
    drawn = ElementTree.fromstring(unquote(source[len(SVG) :]))
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "at 0.316228 <0.123456>" in texts  # a number in a text keeps its digits
    places = " ".join(one.get("d", "") for one in drawn.iter())
    assert re.search(r"\.\d\d\b", places)
    assert not re.search(r"\.\d{3}", places)


def test_to_link_large_figure_uses_webp() -> None:
    source = link(2000)
    assert source.startswith(WEBP)
    with Image.open(io.BytesIO(base64.b64decode(source[len(WEBP) :]))) as picture:
        assert picture.size == (4 * files.PAGE_DPI, 3 * files.PAGE_DPI)
        assert np.asarray(picture.convert("L")).min() < 100 < np.asarray(picture).max()


@pytest.mark.parametrize("markers", [1, 40, 400])
def test_to_link_picks_smaller_format(markers: int) -> None:
    lengths = [len(link(markers, form)) for form in (files.to_svg_link, files.to_webp_link)]
    assert len(link(markers)) == min(lengths)
