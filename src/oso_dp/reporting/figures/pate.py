"""PATE: accuracy of students and of gradient methods over epsilon."""

from collections.abc import Iterator
from typing import Any

from oso_dp import labels
from oso_dp.analysis.pate import compare_students
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import Axis, Chart, Facet, FigureSpec, method_series

ORDER = 59
_STUDENTS = ("#332288", "#44AA99", "#999933", "#661100")  # aggregators, in the order of the rows
_MARKERS = "P*Xd"
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
    students = rows.loc[rows["learning"] != "gradients", "approach"].unique()
    series = {
        name: {"label": name, "color": colour, "marker": marker}
        for name, colour, marker in zip(students, _STUDENTS, _MARKERS, strict=False)
    }
    peers = method_series(study.methods, study.methods).values()
    series |= {look["label"]: look for look in peers if (rows["approach"] == look["label"]).any()}
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
