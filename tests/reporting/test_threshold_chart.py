"""Accuracy over C: the best learning rate of each C, and what does not search C beside it."""

import pandas as pd

from oso_dp.reporting.figures.users import threshold_chart


def points(method: str, *rows: tuple[float, float | None, float | None, float]) -> pd.DataFrame:
    """rows: epsilon, C, quantile and mean accuracy."""
    names = ["epsilon", "threshold", "quantile", "mean"]
    return pd.DataFrame(rows, columns=names).astype(float).assign(method=method, std=0.01)


def test_threshold_chart_draws_best_learning_rate() -> None:
    swept = [(e, c, None, 0.8 + e / 100 - c / 50) for e in (2, 8) for c in (0.1, 0.3, 1.0)]
    worse = [(e, c, None, 0.1) for e in (2, 8) for c in (0.1, 0.3, 1.0)]
    table = pd.concat(
        [
            points("fixed_threshold", *swept, *worse),
            points("fixed_quantile", (2, 0.1, 0.5, 0.7), (2, 0.1, 0.5, 0.6), (2, 0.1, 0.9, 0.75)),
            points("online", (2, 0.1, None, 0.81), (8, 0.1, None, 0.9)),
        ],
        ignore_index=True,
    )
    methods = ["online", "fixed_threshold", "fixed_quantile"]
    chart = threshold_chart(table, "x", methods)
    for axes, epsilon in zip(chart.draw().axes, (2, 8), strict=True):
        (bar,) = axes.containers
        assert [round(float(y), 6) for y in bar.lines[0].get_ydata()] == [
            round(100 * (0.8 + epsilon / 100 - c / 50), 6) for c in (0.1, 0.3, 1.0)
        ]
        flat = [line for line in axes.lines if line.get_linestyle() in ("--", "-.")]
        heights = sorted(round(float(line.get_ydata()[0]), 6) for line in flat)
        assert heights == ([70.0, 81.0] if epsilon == 2 else [90.0])


def test_threshold_chart_few_thresholds_omitted() -> None:
    table = points("fixed_threshold", (2, 0.1, None, 0.8), (2, 1.0, None, 0.7))
    assert threshold_chart(table, "x", ["fixed_threshold"]) is None
