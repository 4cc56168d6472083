"""What all figures share: theme, panels, legend, and saving without a display."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from oso.reporting import labels

DPI = 110
_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
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
    "pdf.fonttype": 42,
}


@contextmanager
def theme() -> Iterator[None]:
    """The figures' look, for the time of the block."""
    with (
        seaborn.axes_style("whitegrid"),
        seaborn.plotting_context("paper"),
        matplotlib.rc_context(_SETTINGS),
    ):
        yield


def panels(count: int, title: str, sharey: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, two abreast; one panel is wider than high."""
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(6.4 if columns == 1 else 8.4, 0.9 + 2.9 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=False, sharey=sharey, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_axis_off()
    figure.suptitle(title)
    return figure, axes[:count]


def legend(figure: Figure, handles: list, columns: int = 5) -> None:
    """One legend below all panels."""
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            handlelength=2.2,
            columnspacing=1.4,
        )


def handle(method: str, methods: list[str], **style) -> Line2D:
    """A legend entry in the method's colour and marker."""
    look = {
        "color": labels.colours(methods)[method],
        "label": labels.method_label(method),
        "marker": labels.markers(methods)[method],
    }
    return Line2D([], [], **(look | style))


def to_png(figure: Figure) -> bytes:
    """The figure as a palette PNG (a third of the size of a true-colour one)."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    buffer.seek(0)
    small = io.BytesIO()
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def to_pdf(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # Without a date the same results give the same file.
    figure.savefig(buffer, format="pdf", facecolor="white", metadata={"CreationDate": None})
    return buffer.getvalue()
