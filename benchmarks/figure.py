"""The figure: time and memory of each competitor as multiples of plain SGD's, by model."""

from collections.abc import Sequence

from competitors import BASELINE, is_ours, label
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rows import MEASURED, Row

from oso_dp.reporting.figures.chart import plain_ticks, theme
from oso_dp.reporting.figures.files import to_png

_BASE, _PEER, _OURS = "#8C8C8C", "#D9A441", "#2F6DB5"
_MEASURES = (
    ("times_sgd", "seconds_per_run_step", 1e3, "ms", "time of a step of one run / plain SGD's"),
    ("times_sgd_peak", "peak_mib", 1.0, "MiB", "peak memory / plain SGD's"),
)


def draw(rows: Sequence[Row]) -> bytes:
    """A PNG; one column per model, time above memory."""
    models = list(dict.fromkeys(row.model for row in rows))
    names = list(dict.fromkeys((row.competitor, row.runs, row.precision) for row in rows))
    with theme():
        figure = Figure(
            figsize=(2.2 + 3.4 * len(models), 1.6 + 2 * (0.4 + 0.24 * len(names))),
            layout="constrained",
        )
        FigureCanvasAgg(figure)
        grid = figure.subplots(2, len(models), sharey=True, squeeze=False)
        for column, model in enumerate(models):
            by_name = {
                (row.competitor, row.runs, row.precision): row for row in rows if row.model == model
            }
            for axes, measure in zip(grid[:, column], _MEASURES, strict=True):
                _panel(axes, [by_name.get(name) for name in names], *measure)
            grid[0, column].set_title(model)
        grid[0, 0].set_yticks(range(len(names)), [label(*name) for name in names])
        grid[0, 0].invert_yaxis()
        kinds = {"plain SGD": _BASE, "peers": _PEER, "oso": _OURS}
        figure.legend(
            handles=[Patch(color=colour, label=kind) for kind, colour in kinds.items()],
            loc="outside lower center",
            ncols=len(kinds),
        )
        figure.suptitle(f"One training step, batch {rows[0].batch_size}, on {rows[0].device}")
        return to_png(figure)


def _panel(
    axes: Axes,
    rows: Sequence[Row | None],
    ratio: str,
    value: str,
    unit: float,
    sign: str,
    text: str,
) -> None:
    for place, row in enumerate(rows):
        if row is None:
            continue
        times = getattr(row, ratio)
        if row.status != MEASURED or not times:
            axes.text(1, place, f" {row.status}", va="center", fontsize=7, color="#8C8C8C")
            continue
        colour = (
            _BASE if row.competitor == BASELINE else _OURS if is_ours(row.competitor) else _PEER
        )
        axes.plot([1, times], [place, place], color=colour, linewidth=3)
        axes.plot(times, place, "o", color=colour)
        note = f"{times:.3g} ({unit * getattr(row, value):.3g} {sign})"
        axes.annotate(
            note, (max(times, 1), place), (6, 0), textcoords="offset points", va="center", size=7
        )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.7), max(high, 4) ** 1.5)  # room for the notes
    plain_ticks(axes.xaxis)
    axes.axvline(1, color=_BASE, linewidth=0.8)
    axes.set_xlabel(text)
    axes.grid(visible=False, axis="y")
