"""Draw figures in parallel processes and save them, without a display."""

import base64
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from urllib.parse import quote

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from oso_dp.errors import OsoError
from oso_dp.reporting.figures.chart import FigureSpec, theme
from oso_dp.reporting.report_folder import ReportFolder

DPI = 220  # of a PNG: twice what a page shows, so that it is sharp on any screen
PAGE_DPI = 120  # of a picture in the page itself
_MAX_PROCESSES = 4  # each process copies the parts of the study that it changes


@dataclass(frozen=True)
class RenderedFigure:
    """A figure in all file formats."""

    png: bytes
    pdf: bytes
    link: str  # the page's image source


@dataclass(frozen=True)
class WrittenFigure:
    """A written figure, with the data that the page needs."""

    spec: FigureSpec
    link: str  # the page's image source
    width: int  # of the PNG, in pixels

    @property
    def is_wide(self) -> bool:
        """Whether it is too wide to be legible on a phone."""
        return self.width > 1600


def write_figures(
    specs: Sequence[FigureSpec], figures: Iterator[RenderedFigure | None], folder: ReportFolder
) -> list[WrittenFigure]:
    """Write each figure as `figures/<name>.png` and `.pdf`; empty ones are left out."""
    written = []
    for spec, drawn in zip(specs, figures, strict=True):
        if drawn is None:
            continue
        folder.write(f"figures/{spec.name}.png", drawn.png)
        folder.write(f"figures/{spec.name}.pdf", drawn.pdf)
        if spec.data is not None:
            numbers = spec.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
            folder.write(f"figures/{spec.name}.csv", numbers)
        width = int.from_bytes(drawn.png[16:20], "big")  # from the PNG's header
        written.append(WrittenFigure(spec, drawn.link, width))
    return written


@contextmanager
def draw_in_background(specs: Sequence[FigureSpec]) -> Iterator[Iterator[RenderedFigure | None]]:
    """Draw each figure while the block runs; None where there is nothing to show.

    The result does not depend on the number of cores. Raises OsoError if a process is killed.
    """
    processes = min(_MAX_PROCESSES, _cores(), len(specs))
    if processes < 2 or sys.platform != "linux":
        yield map(_draw, specs)
        return
    # Specs contain functions and the study; a forked process has them without pickling.
    global _specs
    _specs = specs
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"))
    try:
        with warnings.catch_warnings():
            # Newer Pythons, and JAX where it is loaded, warn of forks beside threads; none draws.
            for category in (DeprecationWarning, RuntimeWarning):
                warnings.filterwarnings("ignore", r".*\bfork\(\)", category)
            figures = pool.map(_draw_one, range(len(specs)))
        yield figures
    except BrokenProcessPool:
        raise OsoError(
            "a process that draws figures was killed; free memory and try again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        _specs = ()


_specs: Sequence[FigureSpec] = ()


def _draw_one(index: int) -> RenderedFigure | None:
    return _draw(_specs[index])


def _draw(spec: FigureSpec) -> RenderedFigure | None:
    with theme():
        figure = spec.draw()
        if figure is None:
            return None
        return RenderedFigure(to_png(figure), to_pdf(figure), to_link(figure))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def to_png(figure: Figure) -> bytes:
    """The figure as a palette PNG (a third of the size of a true-colour one)."""
    buffer = io.BytesIO()
    _picture(figure, DPI).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _picture(figure: Figure, dpi: int) -> Image.Image:
    """The figure in 256 colours."""
    # Drawn once: `savefig` would draw it a second time, to lay it out.
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3])
    # The usual method, median cut, gives thin lines the colour of something larger.
    return picture.quantize(256, method=Image.Quantize.MAXCOVERAGE)


def to_pdf(figure: Figure) -> bytes:
    """The figure as PDF, after `to_png`, which has laid it out."""
    buffer = io.BytesIO()
    figure.set_layout_engine("none")
    # Without a date the same results give the same file.
    FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None})
    return buffer.getvalue()


def to_link(figure: Figure) -> str:
    """The figure as an image's source, inside double quotes: SVG or WebP, whichever is smaller.

    After `to_png`, which has laid it out.
    """
    figure.set_layout_engine("none")
    return min(to_svg_link(figure), to_webp_link(figure), key=len)


def to_webp_link(figure: Figure) -> str:
    buffer = io.BytesIO()  # lossless WebP is two thirds of a PNG's size
    _picture(figure, PAGE_DPI).convert("RGB").save(buffer, format="webp", lossless=True)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def to_svg_link(figure: Figure) -> str:
    buffer = io.BytesIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    # Hundredths of a point are enough for what lies inside of tags: coordinates.
    svg = re.sub(
        r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), buffer.getvalue().decode()
    )
    # Fonts as wide as matplotlib's own, for readers who lack it: nothing moves out of its place.
    svg = svg.replace("'DejaVu Sans'", "DejaVu Sans, Verdana, sans-serif")
    svg = re.sub(r"\s*\n\s*", " ", svg).replace('"', "'")
    return f"data:image/svg+xml,{quote(svg, safe=_PLAIN)}"  # base64 would be a fifth larger


_PLAIN = " !$'()*+,-./:;<=>?@[]^_`{|}~"  # what needs no escape there: an attribute may hold < and >
