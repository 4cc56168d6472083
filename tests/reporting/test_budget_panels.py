"""Panels of several budgets: each has the guesses, the searches and NoDP's line of its own."""

import numpy as np
import pandas as pd
import pytest
from tests.analysis.test_untuned_runs import RHO
from tests.reporting.test_figures import lines_in

from oso_dp.reporting.figures import chart
from oso_dp.reporting.figures import untuned_runs as untuned_runs_figure
from oso_dp.reporting.figures.training_curves import curves_chart

EPSILONS = (3.0, 5.0, 9.0)


@pytest.mark.parametrize("budgets", [1, 2, 3])
def test_curves_chart_no_dp_per_panel(budgets: int) -> None:
    rows = [
        {"run_id": f"{method} {epsilon}", "method": method, "epsilon": epsilon, "seed": 0}
        | {"status": "finished", "step": step, "value": value * step / 100}
        for method, epsilon, value in (
            ("no_dp", np.nan, 0.99),
            *(("online", epsilon, 0.5 + epsilon / 20) for epsilon in EPSILONS[:budgets]),
        )
        for step in (50, 100)
    ]
    axes = (
        curves_chart(pd.DataFrame(rows), "accuracy", "", ["online", "no_dp"]).draw().axes[:budgets]
    )
    colours = chart.colours(["online", "no_dp"])
    for panel, epsilon in zip(axes, EPSILONS, strict=False):
        (plain,) = lines_in(panel, colours["no_dp"])
        assert plain.get_ydata() == pytest.approx([49.5, 99])
        assert plain.get_linestyle() == "--"
        (private,) = lines_in(panel, colours["online"])
        assert private.get_ydata()[-1] == pytest.approx(100 * (0.5 + epsilon / 20))


@pytest.mark.parametrize("more", [0, 1, 3])
def test_untuned_runs_undrawn_methods_named(more: int, store, study) -> None:
    """The figure draws eight methods, and its caption names the others."""
    names = [f"method {place:02d}" for place in range(8 + more)]
    for method in names:
        for rho in RHO[:2]:
            known = {"search_accounting": "single", "noise_multiplier": 500.0, "values": (0.9,)}
            store.add(k=4, method=method, learning_rate=rho, **known)
    (plan,) = untuned_runs_figure.figures(study(store))
    drawn = [axes.get_title() for axes in plan.draw().axes]
    assert len(drawn) == 8
    left = [name for name in names if name not in drawn]
    end = f" Not drawn: {', '.join(left)}." if left else "values far below are cut off."
    assert plan.caption.endswith(end)
