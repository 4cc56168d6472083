"""Figures of what moves Online's C and rho: from stored rows, and from signs that were followed."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from scipy.special import ndtr
from tests.analysis.test_adaptation_signs import followed

from oso_dp.analysis.adaptation_signs import coin_factor, coin_flip_fraction
from oso_dp.analysis.load import read_result_set
from oso_dp.reporting.figures import adaptation_signs
from oso_dp.reporting.figures.adaptation_signs import draw_adaptation_signs, draw_signs, select_runs
from oso_dp.reporting.figures.files import to_png

RATES = "learning_rate_rate=0.0025, threshold_rate=0.0025"


def plan_of(figure, study):
    return next(figure.figures(study), None)


def lines(axes, value):
    colour = adaptation_signs.ADAPTED_COLOURS[value].lower()
    return [line for line in axes.lines if to_hex(line.get_color()) == colour]


def test_draw_adaptation_signs_line_per_seed(store, study) -> None:
    for seed in (0, 1):
        store.add(seed=seed, method_options=RATES, values=(0.9, 0.9, 0.9))
        store.add(seed=seed, method_options=RATES, learning_rate=0.1, values=(0.8, 0.8, 0.8))
    of = study(store)
    above, below = plan_of(adaptation_signs, of).draw().axes
    for value in ("threshold", "learning_rate"):
        assert len(lines(above, value)) == 2
        first = lines(above, value)[0]
        assert (first.get_xdata()[0], first.get_ydata()[0]) == (0, 1)
        expected = np.exp(2.5e-3 * 600 * np.cos(600 / 400))  # as the store's rows walk
        assert first.get_ydata()[-1] == pytest.approx(expected)
    assert above.get_yscale() == "log"
    assert above.get_ylim()[1] > expected
    assert below.get_ylim() == (-0.04, 1.04)


def test_select_runs_largest_cell_per_dataset(store, study) -> None:
    for dataset in ("fashion_mnist", "mnist"):
        for k, epsilon, steps in ((5, 9.0, 600), (9, 3.0, 600), (9, 9.0, 600), (9, 12.0, 60)):
            more = {"steps": steps, "method_options": RATES}
            store.add(dataset=dataset, k=k, epsilon=epsilon, **more)
    of = study(store)
    rows = select_runs(of)
    assert set(rows[["k", "epsilon"]].itertuples(index=False, name=None)) == {(9, 9.0)}
    titles = [axes.get_title() for axes in draw_adaptation_signs(rows).axes]
    assert titles == ["MNIST", "Fashion-MNIST", "", ""]
    assert (
        "MNIST (k = 9, ε = 9), Fashion-MNIST (k = 9, ε = 9)"
        in plan_of(adaptation_signs, of).caption
    )


def test_figures_without_online_omitted(store, study, paper_store) -> None:
    store.add(method="fixed_threshold", method_options=RATES)
    assert plan_of(adaptation_signs, study(store)) is None
    assert plan_of(adaptation_signs, study(paper_store)) is None  # its rates are not stored


def probed(dataset, run_id, gradient, **more) -> pd.DataFrame:
    rows = followed(gradient, [abs(x) for x in gradient])
    known = {"method": "online", "k": 9, "epsilon": 9.0, "threshold": 0.1, "learning_rate": 1.0}
    return rows.assign(
        **known, dataset=dataset, run_id=run_id, true_two_apart=0.5, clipped=1.0, **more
    )


def test_figures_from_results_folder_drawn(store, tmp_path) -> None:
    store.add(dataset="glyphs")
    results = store.write(tmp_path / "results")
    probed("glyphs", "b", [-0.5] * 50).to_csv(results / "adaptation_signs.csv", index=False)
    plan = plan_of(adaptation_signs, read_result_set(results))
    assert plan.caption.startswith("One run of Online each: Glyphs (k = 9, ε = 9, ρ₀ = 1)")
    assert len(to_png(plan.draw())) > 5000


def test_draw_adaptation_signs_band_per_dataset(store, study) -> None:
    for dataset, steps in (("mnist", 600), ("glyphs", 200)):
        more = {"steps": steps, "method_options": RATES, "every": 50, "values": (0.9,) * 3}
        store.add(dataset=dataset, **more)
    figure = draw_adaptation_signs(select_runs(study(store)))
    for panel, steps in zip(figure.axes[:2], (600, 200), strict=True):
        (band,) = panel.collections
        assert band.get_paths()[0].vertices[:, 0].max() == steps
        reach = coin_factor(np.array([steps]), 2.5e-3)[0]
        assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(reach)


def test_draw_adaptation_signs_fractions_match_rows(store, study) -> None:
    store.add(method_options=RATES, values=(0.9,) * 6)
    rows = select_runs(study(store))
    below = draw_adaptation_signs(rows).axes[1]
    for value in ("threshold", "learning_rate"):
        (drawn,) = (
            patch
            for patch in below.patches
            if to_hex(patch.get_edgecolor()) == adaptation_signs.ADAPTED_COLOURS[value].lower()
        )
        told = rows[rows["value"] == value]["up"]
        assert drawn.get_data().values == pytest.approx(told.to_numpy())
        assert not np.allclose(told, 0.5)


def test_draw_signs_fractions_match_rows() -> None:
    """Fractions without noise are dashed, expected ones dotted; rho is drawn above C."""
    rows = probed("mnist", "a", [0.5, 0.5, -0.5] * 20)
    rows["direction"] = -rows["gradient"]
    rows = rows.assign(gradient_z=2.0, direction_z=-1.0, true_direction=[-0.5, 0.5] * 30)
    axes = draw_signs(rows).axes
    for panel, name, product in ((axes[0], "ρ", "gradient"), (axes[1], "C", "direction")):
        assert panel.get_ylabel() == f"fraction of +, {name}'s sign"
        seen, true, expected = panel.patches
        assert (true.get_linestyle(), expected.get_linestyle()) == ("--", ":")
        shares = {
            "seen": (rows[product] > 0).mean(),
            "true": (rows[f"true_{product}"] > 0).mean(),
            "expected": ndtr(rows[f"{product}_z"].iloc[0]),
        }
        for drawn, share in zip((seen, true, expected), shares.values(), strict=True):
            values = drawn.get_data().values
            assert values == pytest.approx([share] * len(values), abs=0.05)


def test_draw_signs_shows_last_signs() -> None:
    rows = probed("mnist", "a", [0.5] * 60 + [-0.5] * 25 + [0.5] * 15)
    panel = draw_signs(rows).axes[2]
    fields = [mesh.get_array().ravel().tolist() for mesh in panel.collections]
    assert fields == [[0] * 25 + [1] * 15, [1] * 40] * 2
    for mesh in panel.collections:
        edges = mesh.get_coordinates()[0, :, 0]
        assert (edges[0], edges[-1]) == (rows["step"].max() - 39.5, rows["step"].max() + 0.5)


def test_draw_adaptation_signs_chance_band_width(store, study) -> None:
    """The chance band is wider where fewer signs lie between two evaluations."""
    store.add(method_options=RATES, values=(0.9,) * 4, every=30)
    rows = select_runs(study(store))
    below = draw_adaptation_signs(rows).axes[1]
    (coin,) = (patch for patch in below.patches if patch.get_fill())
    values, edges, baseline = coin.get_data()
    moves = [29, 30, 30, 510]
    expected = [coin_flip_fraction(count) for count in moves]
    assert values - 0.5 == pytest.approx(expected)
    assert 0.5 - baseline == pytest.approx(expected)
    assert list(edges) == [0, 30, 60, 90, 600]
