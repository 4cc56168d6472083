"""PATE: accuracy of students and of gradient methods over epsilon."""

from collections.abc import Iterator
from typing import Any

from oso_dp import labels
from oso_dp.analysis.pate import compare_students
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import Axis, Chart, Facet, FigureSpec

ORDER = 59
_COLOURS = ("#332288", "#44AA99", "#DDCC77", "#CC6677", "#AA4499", "#661100", "#999933", "#88CCEE")
_MARKERS = "osD^vPX*"
_STYLES: dict[Any, dict[str, Any]] = {
    "gradients": {"linestyle": ":", "label": "gradients"},
    "supervised": {"linestyle": "--", "label": "student, supervised"},
    "pseudo_labels": {"linestyle": "-", "label": "student, pseudo-labels"},
}


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """None without students."""
    if study.pate.empty:
        return
    rows = compare_students(study)
    rows = rows.assign(mean=100 * rows["mean"], std=100 * rows["std"])
    series = {
        name: {"label": name, "color": _COLOURS[place], "marker": _MARKERS[place]}
        for place, name in enumerate(rows["approach"].unique()[: len(_MARKERS)])
    }
    epsilons = sorted(rows["epsilon"].unique())
    chart = Chart(
        rows,
        "PATE: students beside gradient methods at equal ε",
        Axis("epsilon", "ε", categories={value: f"{value:g}" for value in epsilons}),
        Axis("mean", "accuracy (%)"),
        series,
        "approach",
        styles=_STYLES,
        style="learning",
        error="std",
        columns=Facet("dataset", labels.dataset_short),
        share_y=False,
        dodge=(0.05, 0.0),
    )
    caption = (
        "Accuracy on the test examples with odd index: students of private labels, and untuned "
        "gradient methods on the same network. Bars are standard deviations over seeds."
    )
    yield FigureSpec("pate_students", "", None, "pate", caption, chart.draw)
