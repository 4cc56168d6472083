"""What a figure is, and the renderer that draws it.

A figure is a `FigureSpec`. Most draw a `Chart`: rows, two axes, series and facets. Heat maps and
the figures of adaptation signs have drawing functions instead. Theme, colours, legend and
logarithmic axes are the same for all.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import matplotlib
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from oso_dp import labels
from oso_dp.defaults import ROUNDING
from oso_dp.methods import method_names

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
# Okabe and Ito's colour-blind safe palette; markers tell methods apart without colour.
_COLOURS = {
    "online": "#0072B2",
    "fixed_threshold": "#D55E00",
    "fixed_quantile": "#009E73",
    "adam_wosm": "#CC79A7",
    "no_dp": "#4D4D4D",
}
_MARKERS = {
    "online": "o",
    "fixed_threshold": "s",
    "fixed_quantile": "D",
    "adam_wosm": "^",
    "no_dp": "P",
}
# The package's further methods, in the order of their colours and markers; new ones follow.
_FURTHER = (
    *("auto_dog", "auto_s", "auto_wosm", "dp_adam", "fixed_quantile_linear"),
    *("fixed_quantile_per_layer", "fixed_threshold_falling", "fixed_threshold_per_layer"),
    *("fixed_threshold_preset", "online_additive", "online_frozen_learning_rate"),
    *("online_frozen_threshold", "online_scale_invariant", "psac"),
)
_MORE_COLOURS = (
    *("#E69F00", "#56B4E9", "#8C6D31", "#000000"),
    *("#332288", "#882255", "#999933", "#44AA99"),  # from Tol's muted palette
    *("#AA4499", "#117733", "#CC6677", "#661100"),
    *("#6699CC", "#B8860B", "#DDCC77", "#004488", "#BB5566"),
)
_MORE_MARKERS = (*"v<>hX*dp8H", "$+$", "$=$", "$o$", "$x$", "$v$", "$y$", "$z$")
GREY = "#555555"  # of legend entries that concern all series
OURS_AND_PAPER: dict[Any, dict[str, Any]] = {
    "ours": {"label": "ours", "linestyle": "-", "elinewidth": 1.4, "zorder": 3},
    "paper": {"label": "paper", "linestyle": "--", "mfc": "white", "linewidth": 1.1,
              "elinewidth": 0.9, "zorder": 2},
}  # fmt: skip


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the report."""

    name: str  # file name without suffix
    dataset: str  # empty if not about one data set
    k: int | None  # None: over all k
    kind: str  # decides its place in the page
    caption: str
    draw: Callable[[], Figure | None]  # a chart's, mostly; None if there is nothing to show
    measured: bool = True  # False if it shows only the paper's values
    data: pd.DataFrame | None = None  # its numbers, if no table of the report has them


@dataclass(frozen=True)
class Axis:
    """The column on one axis of all panels, and how it is shown."""

    column: str
    label: str | Callable[[Mapping[str, Any]], str] = ""  # or from a panel's facets
    scale: Literal["linear", "log"] = "linear"
    categories: Mapping[Any, str] | None = None  # value -> tick label: one position each, in order
    limits: tuple[float | None, float | None] = (None, None)
    ticks: Sequence[float] | None = None


@dataclass(frozen=True)
class Facet:
    """A column with one panel per value, in the order of the values, or of the rows for text."""

    column: str
    title: Callable[[Any], str] = str

    def values(self, rows: pd.DataFrame) -> list[Any]:
        found = list(dict.fromkeys(rows[self.column]))
        return sorted(found) if pd.api.types.is_numeric_dtype(rows[self.column]) else found


BY_EPSILON = Facet("epsilon", lambda epsilon: f"ε = {epsilon:g}")


@dataclass(frozen=True)
class Line:
    """A reference line across one panel, or across all."""

    value: float
    style: Mapping[str, Any]  # with a label for the legend
    panel: Mapping[str, Any] = field(default_factory=dict)  # facet column -> value
    vertical: bool = False
    half: float = math.nan  # half the width of a band around it


@dataclass(frozen=True)
class Chart:
    """Rows and how they are drawn.

    `series` maps each value of the column `hue` to its colour, marker and label, and `styles` each
    value of the column `style` to its line and filling; both in the order of the legend, which
    names those with a label.
    """

    data: pd.DataFrame
    title: str
    x: Axis
    y: Axis
    series: Mapping[Any, Mapping[str, Any]]
    hue: str = "method"
    styles: Mapping[Any, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    style: str | None = None
    group: str | None = None  # column: a line for each value
    error: str | None = None  # column: half of an error bar
    band: tuple[str, str] | None = None  # columns: the ends of a band
    columns: Facet | None = None  # side by side; in several rows without `rows`
    rows: Facet | None = None
    abreast: int = 2  # panels in a row
    share_x: bool | Literal["row", "col"] = False
    share_y: bool = True  # in each row of panels, or in all without `rows`
    dodge: tuple[float, float] = (0.0, 0.0)  # along the categories: between series, and styles
    lines: Sequence[Line] = ()
    legend: Sequence[Any] = ()  # further entries
    mark: "Callable[[Chart, Axes, pd.DataFrame], None] | None" = None  # instead of lines
    decorate: Callable[[Axes, pd.DataFrame], None] | None = None  # a panel, once it is drawn

    def draw(self) -> Figure | None:
        """The figure; None without a value or reference line."""
        rows = self.data.dropna(subset=[self.x.column, self.y.column])
        rows = rows[rows[self.hue].isin(list(self.series))]
        if rows.empty and not self.lines:
            return None
        figure, panels = self._make_panels(rows)
        for axes, facet in panels:
            axes.set_xscale(self.x.scale)
            here = _in_panel(rows, facet)
            (self.mark or Chart._draw_series)(self, axes, here)
            self._draw_lines(axes, facet)
            if self.decorate:
                self.decorate(axes, here)
        for axes, _ in panels:
            self._set_scales(axes)
        add_legend(figure, self._legend_handles(rows))
        return figure

    def _make_panels(self, rows: pd.DataFrame) -> tuple[Figure, list[tuple[Axes, dict[str, Any]]]]:
        """The panels that have rows, each with the values of its facets."""
        across = self.columns.values(rows) if self.columns else [None]
        down = self.rows.values(rows) if self.rows else [None]
        wide = len(across) if self.rows else min(self.abreast, len(across))
        high = len(down) if self.rows else -(-len(across) // wide)
        figure = Figure(figsize=self._size(wide, high), layout="constrained")
        sharey: Any = self.share_y and ("row" if self.rows else True)
        grid = figure.subplots(high, wide, sharex=self.share_x, sharey=sharey, squeeze=False)
        figure.suptitle(wrap_title(figure, self.title))
        shown, facets = {}, {}
        for place, axes in enumerate(grid.flat):
            row, column = divmod(place, wide)
            facet = {}
            if self.rows:
                facet[self.rows.column] = down[row]
            if self.columns and (self.rows or place < len(across)):
                facet[self.columns.column] = across[column if self.rows else place]
            if (self.columns and not facet) or (facet and _in_panel(rows, facet).empty):
                axes.set_visible(False)
                continue
            shown[row, column], facets[row, column] = axes, facet
            if self.columns and (not self.rows or row == 0 or (row - 1, column) not in shown):
                axes.set_title(self.columns.title(facet[self.columns.column]))
        for (row, column), axes in shown.items():
            if (row + 1, column) not in shown:
                label = self.x.label
                axes.set_xlabel(label if isinstance(label, str) else label(facets[row, column]))
                axes.tick_params(labelbottom=True)
            if (row, column - 1) not in shown:
                head = f"{self.rows.title(down[row])}\n" if self.rows else ""
                axes.set_ylabel(f"{head}{self.y.label}")
                axes.tick_params(labelleft=True)
        return figure, [(axes, facets[place]) for place, axes in shown.items()]

    def _size(self, wide: int, high: int) -> tuple[float, float]:
        """Inches."""
        if self.y.categories is not None:
            return (6.8 if wide == 1 else 3.4 + 2.4 * wide), 1.6 + 0.3 * len(self.y.categories)
        if self.rows:
            return 1.8 + 2.3 * wide, 1.0 + 2.5 * high
        return {1: 6.8, 2: 8.4, 3: 10.0}[wide], 4.4 if wide == high == 1 else 0.9 + 2.9 * high

    def _draw_series(self, axes: Axes, rows: pd.DataFrame) -> None:
        styles = [s for s in self.styles if not self.style or (self.data[self.style] == s).any()]
        for i, (name, look) in enumerate(self.series.items()):
            for j, style in enumerate(styles):
                here = rows[rows[self.hue] == name]
                here = here[here[self.style] == style] if self.style else here
                between, within = self.dodge
                shift = between * (i - (len(self.series) - 1) / 2)
                shift += within * (j - (len(styles) - 1) / 2)
                for _, line in here.groupby(self.group) if self.group else [(None, here)]:
                    if len(line):
                        self._draw_one(axes, line, shift, {**look, **self.styles[style]})

    def _draw_one(self, axes: Axes, rows: pd.DataFrame, shift: float, look: dict[str, Any]) -> None:
        """One line of one series, from left to right."""
        rows = rows if self.y.categories is not None else rows.sort_values(self.x.column)
        x, y = (
            rows[axis.column].to_numpy()
            if axis.categories is None
            else rows[axis.column].map(list(axis.categories).index).to_numpy() + shift
            for axis in (self.x, self.y)
        )
        if self.band:
            low, high = (rows[name] for name in self.band)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
        if self.error is None:
            axes.plot(x, y, **look)
            return
        # A single seed has no standard deviation: draw no bar rather than one of length zero.
        half = rows[self.error].to_numpy(float) if rows[self.error].notna().any() else None
        side = "yerr" if self.y.categories is None else "xerr"
        axes.errorbar(x, y, **{side: half}, capsize=2.3, **look)  # type: ignore[arg-type]

    def _draw_lines(self, axes: Axes, facet: Mapping[str, Any]) -> None:
        for line in self.lines:
            if any(value != line.panel.get(name, value) for name, value in facet.items()):
                continue
            (axes.axvline if line.vertical else axes.axhline)(line.value, **line.style)
            if not math.isnan(line.half):
                ends = line.value - line.half, line.value + line.half
                axes.axhspan(*ends, color=line.style["color"], alpha=0.15, linewidth=0)

    def _set_scales(self, axes: Axes) -> None:
        for ruler, spec in ((axes.xaxis, self.x), (axes.yaxis, self.y)):
            if spec.categories is not None:
                ruler.set_ticks(range(len(spec.categories)), list(spec.categories.values()))
        if self.x.categories:
            axes.set_xlim(-0.5, len(self.x.categories) - 0.5)
            axes.margins(y=0.08)
        elif self.x.limits != (None, None):
            axes.set_xlim(*self.x.limits)
        if self.y.categories:
            axes.set_ylim(len(self.y.categories) - 0.4, -0.6)  # the first on top
            axes.margins(x=0.08)
        if self.x.ticks is not None:
            axes.set_xticks(self.x.ticks, [f"{value:g}" for value in self.x.ticks])
            axes.xaxis.set_minor_locator(NullLocator())
        elif self.x.scale == "log":
            left, right = axes.get_xlim()
            if math.isclose(left, right, rel_tol=ROUNDING):  # one value, rounded in two ways
                axes.set_xlim(left / 1.1, right * 1.1)
            plain_ticks(axes.xaxis)
        if self.y.scale == "log":
            log_axis(axes)

    def _legend_handles(self, rows: pd.DataFrame) -> list[Any]:
        present = set(rows[self.hue])
        handles = [
            Line2D([], [], **_line_style(look))
            for name, look in self.series.items()
            if name in present and "label" in look
        ]
        labelled = {line.style["label"]: line for line in self.lines if "label" in line.style}
        handles += [Line2D([], [], **_line_style(line.style)) for line in labelled.values()]
        if self.style:
            used = set(rows[self.style])
            styles = [s for n, s in self.styles.items() if n in used and "label" in s]
            if len(styles) > 1 or not handles:
                grey = {"color": GREY, "marker": "o"}
                handles += [Line2D([], [], **(grey | _line_style(style))) for style in styles]
        return [*handles, *self.legend]


def _in_panel(rows: pd.DataFrame, facet: Mapping[str, Any]) -> pd.DataFrame:
    for column, value in facet.items():
        rows = rows[rows[column] == value]
    return rows


def _line_style(look: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in look.items() if name not in ("zorder", "elinewidth")}


def wrap_title(figure: Figure, title: str) -> str:
    letters = int(11 * figure.get_figwidth())  # that fit beside each other
    return "\n".join(textwrap.fill(line, letters) for line in title.split("\n"))


@contextmanager
def theme() -> Iterator[None]:
    """Context manager that sets the figures' theme."""
    entry_style = seaborn.axes_style("whitegrid") | seaborn.plotting_context("paper")
    with matplotlib.rc_context(entry_style | _SETTINGS):
        yield


def colours(methods: Iterable[str]) -> dict[str, str]:
    """One colour per method, the same in every report for the package's methods."""
    return _assign(methods, _COLOURS, _MORE_COLOURS)


def markers(methods: Iterable[str]) -> dict[str, str]:
    """One marker per method, the same in every report for the package's methods."""
    return _assign(methods, _MARKERS, _MORE_MARKERS)


def _assign(methods: Iterable[str], known: dict[str, str], more: tuple[str, ...]) -> dict[str, str]:
    # Whether or not this study has them.
    registered = sorted(set(method_names()) - {*known, *_FURTHER})
    others = sorted(set(methods) - {*known, *_FURTHER, *registered})
    extra = [*_FURTHER, *registered, *others]
    return known | {m: more[i % len(more)] for i, m in enumerate(extra)}


def method_series(
    drawn: Iterable[str], methods: Iterable[str], label: bool = True, **style: Any
) -> dict[str, dict[str, Any]]:
    """The `Chart.series` of methods in the paper's order.

    drawn: the methods of the figure. methods: all of the report, on which further methods' colours
    depend. label: whether the legend names them.
    """
    colour, marker = colours(methods), markers(methods)
    return {
        name: {"color": colour[name], "marker": marker[name]}
        | ({"label": labels.method_label(name)} if label else {})
        | style
        for name in labels.sort_methods(drawn)
    }


def make_panel_grid(
    rows: int, columns: int, title: str, sharex: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns small panels with one y scale in each row."""
    figure = Figure(figsize=(1.8 + 2.3 * columns, 1.0 + 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=sharex, sharey="row", squeeze=False)
    figure.suptitle(wrap_title(figure, title))
    return figure, [list(row) for row in axes]


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """One legend below all panels, in as many columns as fit."""
    if handles:
        longest = max(len(h.get_label()) for h in handles)
        least = 1 if figure.get_figwidth() < 6.4 else 2
        columns = max(least, int(figure.get_figwidth() / (0.5 + 0.075 * longest)))
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            handlelength=2.2,
            columnspacing=1.4,
        )


def log_axis(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers, at least a factor four high."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 4:  # a flat line needs a scale to be read on
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / 2.2, middle * 2.2)
    plain_ticks(axes.yaxis)


def plain_ticks(axis: Ruler) -> None:
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
