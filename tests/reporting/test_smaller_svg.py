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
    """Of each element in its order: kind, style with what its groups say, rest, numbers.

    A class is told as its rule, a name as the number of those before it.
    """
    elements = []
    names: dict[str, str] = {}
    rules = dict(re.findall(r"\.(\w+)\{(.*?)\}", svg.decode()))

    def known(value: str | None) -> str | None:
        name = re.fullmatch(r"(?:#|url\(#)?([^)]+)\)?", value or "")
        return names.setdefault(name[1], str(len(names))) if name else None

    def walk(element: ElementTree.Element, style: str) -> None:
        said = rules[element.get("class", "")] if element.get("class") else style
        own = element.get("style", said).replace("; ", ";").replace(": ", ":")
        tag = element.tag.partition("}")[2]
        if tag not in ("g", "svg", "defs", "metadata"):
            numbers = re.findall(
                r"-?\d+\.?\d*", " ".join(element.get(k, "") for k in ("d", "x", "y"))
            )
            rest = [known(element.get(k)) for k in (LINK, "clip-path", "id")]
            turned = element.get("transform") or ""
            rest.append(None if turned.startswith("rotate(-0 ") else turned or None)
            text = re.sub(r"\.s\d+\{.*\}", "", (element.text or "").strip())
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
    assert whole.count(b' clip-path="') == less.count(b' clip-path="')


def test_each_name_is_one_part_s_alone() -> None:
    names = re.findall(b' id="(.*?)"', smaller(drawn(5)))
    assert len(set(names)) == len(names) > 3


def test_much_is_left_out() -> None:
    whole = drawn(200)
    assert len(smaller(whole)) < 0.5 * len(whole)
    assert smaller(smaller(whole)) == smaller(whole)
