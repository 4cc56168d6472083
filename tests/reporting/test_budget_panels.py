"""Panels of several budgets: each has the guesses, the searches and NoDP's line of its own."""

import numpy as np
import pandas as pd
import pytest
from tests.analysis.test_untuned_runs import RHO
from tests.reporting.test_figures import lines_in

from oso_dp.analysis.untuned_runs import untuned_runs
from oso_dp.reporting.figures import chart
from oso_dp.reporting.figures import untuned_runs as untuned_runs_figure
from oso_dp.reporting.figures.training_curves import curves_chart
from oso_dp.reporting.figures.untuned_runs import untuned_chart

EPSILONS = (3.0, 5.0, 9.0)


def test_guesses_stand_in_the_panel_of_their_own_budget(store, study) -> None:
    """With the best of the searches at that budget, of the method's own and of Online's."""
    for place, epsilon in enumerate(EPSILONS):
        for method, lower in (("online", 0.0), ("auto_s", 0.05)):
            for i, rho in enumerate(RHO):
                value = 0.6 + 0.1 * place + 0.01 * i - lower
                known = {"k": 4, "epsilon": epsilon, "method": method, "learning_rate": rho}
                store.add(
                    **known, search_accounting="single", noise_multiplier=500.0, values=(value,)
                )
                store.add(**known, noise_multiplier=900.0, values=(value - 0.02,))
    one = study(store)
    rows = untuned_runs(one)
    drawn = iter(untuned_chart(rows, "", one.methods).draw().axes)
    for place in range(len(EPSILONS)):
        for method, lower in (("online", 0.0), ("auto_s", 0.05)):
            axes = next(drawn)
            points = [line for line in axes.lines if line.get_marker() not in ("None", "_", "|")]
            expected = [100 * (0.6 + 0.1 * place + 0.01 * i - lower) for i in range(4)]
            assert [line.get_ydata().tolist() for line in points] == [pytest.approx(expected)]
            assert list(points[0].get_xdata()) == pytest.approx(RHO)
            flat = {line.get_linestyle(): line.get_ydata()[0] for line in axes.lines
                    if len(line.get_ydata()) == 2}  # fmt: skip
            best = 100 * (0.6 + 0.1 * place + 0.03 - 0.02)
            online = {} if method == "online" else {":": pytest.approx(best)}
            assert flat == {"--": pytest.approx(best - 100 * lower), **online}


@pytest.mark.parametrize("budgets", [1, 2, 3])
def test_nodps_curve_stands_in_each_panel_and_no_others_do(budgets: int) -> None:
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
def test_methods_that_have_no_panel_are_named(more: int, store, study) -> None:
    """Eight fit beside each other."""
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
