"""Figure 1: drawn from the measured cosines, each noise from its own."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from oso_dp.analysis.side_measurements import COSINES
from oso_dp.errors import OsoError
from oso_dp.reporting.figures.figure_01 import cosine_chart, figures


def cosines(**more):
    rows = [
        {
            **{"dataset": "mnist", "method": "online", "k": 9, "epsilon": 9.0},
            **{"learning_rate": 1.0, "noise_multiplier": 0.8, "realisations": 20},
            **{"step": step, "threshold": c, "run_threshold": 0.1 if step == 100 else None},
            **{"batch_mean": mean, "batch_std": 0.1, "data_mean": mean / 2, "data_std": 0.1},
        }
        for step in (100, 950)
        for c, mean in ((0.01, 0.1), (1.0, 0.7), (100.0, -0.1))
    ]
    return pd.DataFrame([row | more for row in rows])


def test_figure_01_one_per_noise_multiplier():
    calm = cosines(noise_multiplier=0.01).assign(batch_mean=0.9)
    study = SimpleNamespace(cosine=pd.concat([calm, cosines()]))
    own, other = figures(study)
    assert (own.name, other.name) == ("figure_01", "figure_01_nu0.01")
    assert "(ν = 0.8)" in own.caption
    assert "(ν = 0.01)" in other.caption
    for plan, peak in ((own, 0.7), (other, 0.9)):
        highest = [max(line.get_ydata()) for line in plan.draw().axes[0].lines]
        assert max(highest) == pytest.approx(peak)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a table of cosines"),
        ("a,b\n1,2\n", "not a table of cosines"),
        (cosines(batch_mean=None).to_csv(index=False), "rows or numbers are missing"),
        (cosines(threshold="x").to_csv(index=False), "not a table of cosines"),
        (cosines().iloc[:0].to_csv(index=False), "rows or numbers are missing"),
        (cosines().assign(k=[7, 9] * 3).to_csv(index=False), "more than one run"),
        (cosines().assign(epsilon=[3, 9] * 3).to_csv(index=False), "more than one run"),
        (cosines().assign(learning_rate=[1, 2] * 3).to_csv(index=False), "more than one run"),
        (cosines().assign(method=["a", "b"] * 3).to_csv(index=False), "more than one run"),
        (cosines().assign(dataset=["a", "b"] * 3).to_csv(index=False), "more than one run"),
    ],
)
def test_cosines_invalid_file_raises(tmp_path, content, message):
    path = tmp_path / "cosine.csv"
    path.write_text(content)
    with pytest.raises(OsoError, match=message) as error:
        COSINES.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_cosine_chart_bands_equal_std():
    rows = cosines(data_std=0.02)
    for panel, truth in zip(cosine_chart(rows, "").draw().axes, ("batch", "data"), strict=True):
        curve = rows[rows["step"] == 100]
        heights = panel.collections[0].get_paths()[0].vertices[:, 1]
        mean, std = curve[f"{truth}_mean"], curve[f"{truth}_std"]
        assert (heights.max(), heights.min()) == pytest.approx(
            ((mean + std).max(), (mean - std).min())
        )


@pytest.mark.parametrize("at", [0.01, 0.03, 0.1, 2.0, 100.0])
def test_cosine_chart_run_threshold_interpolated(at: float) -> None:
    """The run's own threshold lies on the curve, which is linear in log C."""
    rows = cosines()
    rows = rows[rows["step"] == 100].assign(run_threshold=at)
    for panel, truth in zip(cosine_chart(rows, "").draw().axes, ("batch", "data"), strict=True):
        assert panel.get_xscale() == "log"
        (own,) = [line for line in panel.lines if line.get_marker() == "D"]
        (curve,) = [line for line in panel.lines if len(line.get_xdata()) == 3]
        place = np.log10([at, *curve.get_xdata()])
        expected = np.interp(place[0], place[1:], rows[f"{truth}_mean"])
        assert (own.get_xdata()[0], own.get_ydata()[0]) == pytest.approx((at, expected))
