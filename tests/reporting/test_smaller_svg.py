"""What is left out of an SVG is nowhere to be seen: the same elements, styles and places."""

import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from oso_dp.reporting.figures.smaller_svg import smaller

LINK = "{http://www.w3.org/1999/xlink}href"


def drawn(points: int) -> bytes:
    """Lines with markers of one look and of several, bands, curves and text."""
    random = np.random.default_rng(0)
    figure = Figure()
    axes = figure.add_subplot()
    for marker in "osD":
        axes.plot(random.normal(size=points), random.normal(size=points), marker=marker)
    axes.scatter(random.normal(size=points), random.normal(size=points), c=random.random(points))
    axes.fill_between([0, 1], [0, 1], [1, 2], alpha=0.3)
    axes.set_title("a <b> & c")
    axes.set_xlabel("$x^2$ turned", rotation=30)
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def seen(svg: bytes) -> list[tuple]:
    """Of each element in its order: kind, style with what its groups say, rest, numbers."""
    elements = []

    def walk(element: ElementTree.Element, style: str) -> None:
        own = element.get("style", style).replace("; ", ";").replace(": ", ":")
        tag = element.tag.partition("}")[2]
        if tag not in ("g", "svg", "defs", "metadata"):
            numbers = re.findall(
                r"-?\d+\.?\d*", " ".join(element.get(k, "") for k in ("d", "x", "y"))
            )
            rest = [element.get(k) for k in (LINK, "clip-path", "transform", "id")]
            rest = [None if (one or "").startswith("rotate(-0 ") else one for one in rest]
            text = (element.text or "").strip()
            elements.append((tag, own, *rest, text, [float(n) for n in numbers]))
        for child in element:
            walk(child, own if tag == "g" else "")

    walk(ElementTree.fromstring(svg), "")
    return elements


@pytest.mark.parametrize("points", [1, 2, 40])
def test_nothing_that_is_seen_changes(points: int) -> None:
    whole = drawn(points)
    less = smaller(whole)
    assert len(seen(whole)) == len(seen(less)) > 30
    for (*one, places), (*other, close) in zip(seen(whole), seen(less), strict=True):
        assert one == other
        assert places == pytest.approx(close, abs=0.1)
    assert re.findall(b'clip-path="[^"]*"', whole) == re.findall(b'clip-path="[^"]*"', less)


def test_much_is_left_out() -> None:
    whole = drawn(200)
    assert len(smaller(whole)) < 0.6 * len(whole)
    assert smaller(smaller(whole)) == smaller(whole)
