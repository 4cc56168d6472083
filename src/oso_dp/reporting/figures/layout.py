"""Layout of all figures: theme, panels, legends, axes, and saving without a display."""

import base64
import io
import math
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import quote

import matplotlib
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from oso_dp import labels
from oso_dp.reporting.figures import styles

DPI = 220  # of a PNG: twice what a page shows, so that it is sharp on any screen
PAGE_DPI = 150  # of a picture in the page itself
MAX_SVG_BYTES = 50_000  # of a figure in the page; a larger one is shown as a picture
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "figure.titlesize": 11,
    "grid.color": "#E3E3E3",
    "axes.edgecolor": "#9A9A9A",
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "lines.markeredgewidth": 1.0,
    "pdf.fonttype": 3,  # the other kind, 42, takes as long as drawing
    "figure.facecolor": "white",
    "text.hinting": "none",  # hinting makes some strokes thicker than others
    "svg.fonttype": "none",  # text stays text: a third of the size
    "svg.hashsalt": "oso",  # the same results give the same file
}


@contextmanager
def theme() -> Iterator[None]:
    """Context manager that sets the figures' theme."""
    entry_style = seaborn.axes_style("whitegrid") | seaborn.plotting_context("paper")
    with matplotlib.rc_context(entry_style | _SETTINGS):
        yield


_WIDTHS = {1: 6.4, 2: 8.4, 3: 10.0}  # inches, by panels abreast


def make_panels(
    count: int, title: str, abreast: int = 2, sharex: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with one y scale, at most `abreast` (3 or less) in a row.

    sharex: one x scale, too, written below the lowest panels only.
    """
    columns = min(abreast, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(_WIDTHS[columns], 0.9 + 2.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=sharex, sharey=True, squeeze=False)
    axes = list(grid.flat)
    if sharex and count < len(axes):  # the last row is short: the one above ends some columns
        for above in axes[count - columns : len(axes) - columns]:
            above.tick_params(labelbottom=True)
    for spare in axes[count:]:
        spare.set_axis_off()
    figure.suptitle(title)
    return figure, axes[:count]


def make_panel_grid(
    rows: int, columns: int, title: str, sharex: bool | Literal["col"] = True
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns small panels with one y scale in each row.

    sharex: one x scale for all, or ("col") for each column.
    """
    figure = Figure(figsize=(1.8 + 2.3 * columns, 1.0 + 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=sharex, sharey="row", squeeze=False)
    letters = int(10 * figure.get_figwidth())  # that fit beside each other
    figure.suptitle("\n".join(textwrap.wrap(title, letters)))
    return figure, [list(row) for row in axes]


def add_legend(figure: Figure, handles: list[Any]) -> None:
    """One legend below all panels, in as many columns as fit."""
    if handles:
        longest = max(len(h.get_label()) for h in handles)
        least = 1 if figure.get_figwidth() < _WIDTHS[1] else 2
        columns = max(least, int(figure.get_figwidth() / (0.5 + 0.075 * longest)))
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            handlelength=2.2,
            columnspacing=1.4,
        )


def legend_handle(method: str, methods: list[str], **style: Any) -> Line2D:
    """A legend entry in the method's colour and marker."""
    entry_style: dict[str, Any] = {
        "color": styles.colours(methods)[method],
        "label": labels.method_label(method),
        "marker": styles.markers(methods)[method],
    }
    return Line2D([], [], **(entry_style | style))


def log_axis(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers, at least a factor four high."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 4:  # a flat line needs a scale to be read on
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / 2.2, middle * 2.2)
    plain_ticks(axes.yaxis)


def plain_ticks(axis: Axis) -> None:
    """Ticks at round numbers on a logarithmic axis, a few to a dozen of them.

    Plain text, since each further font (mathtext brings its own) slows the PDF down.
    """
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    steps: tuple[float, ...] = (1.0,)
    if decades < 1.2:
        steps = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
    elif decades < 2:
        steps = (1.0, 2.0, 5.0)
    elif decades < 3.5:
        steps = (1.0, 3.0)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


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
    """The figure as an image's source, inside double quotes, after `to_png`, which has laid it out.

    SVG, or a picture where SVG is large.
    """
    buffer = io.BytesIO()
    figure.set_layout_engine("none")
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    # Hundredths of a point are enough for what lies inside of tags: coordinates.
    svg = re.sub(
        r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), buffer.getvalue().decode()
    )
    if len(svg) > MAX_SVG_BYTES:
        buffer = io.BytesIO()  # two thirds of a PNG's size
        _picture(figure, PAGE_DPI).convert("RGB").save(buffer, format="webp", lossless=True)
        return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    # Fonts as wide as matplotlib's own, for readers who lack it: nothing moves out of its place.
    svg = svg.replace("'DejaVu Sans'", "DejaVu Sans, Verdana, sans-serif")
    svg = re.sub(r"\s*\n\s*", " ", svg).replace('"', "'")
    return f"data:image/svg+xml,{quote(svg, safe=_PLAIN)}"  # base64 would be a fifth larger


_PLAIN = " !$'()*+,-./:;<=>?@[]^_`{|}~"  # what needs no escape there: an attribute may hold < and >
