"""Figures drawn by several processes: the same as by one, in their order, and their failures."""

import os
import signal

import pytest
from matplotlib.figure import Figure

from oso_dp.errors import OsoError
from oso_dp.reporting.figures import files
from oso_dp.reporting.figures.chart import FigureSpec


def plan(number: int, draw=None) -> FigureSpec:
    def dots() -> Figure | None:
        if number == 2:
            return None
        figure = Figure(figsize=(2, 2), layout="constrained")
        figure.subplots().plot(range(number + 2), "o")
        return figure

    return FigureSpec(f"figure_{number}", "", None, "metric", "", draw or dots)


@pytest.fixture
def cores(monkeypatch):
    return lambda count: monkeypatch.setattr(files, "_cores", lambda: count)


def drawn(plans: list[FigureSpec]) -> list[files.RenderedFigure | None]:
    with files.draw_in_background(plans) as figures:
        return list(figures)


def test_draw_in_background_matches_one_process(cores) -> None:
    plans = [plan(number) for number in range(7)]
    cores(1)
    alone = drawn(plans)
    cores(3)
    assert drawn(plans) == alone
    assert [figure is None for figure in alone] == [number == 2 for number in range(7)]
    assert len({figure.png for figure in alone if figure}) == 6


@pytest.mark.parametrize("count", [1, 2])
def test_draw_in_background_figure_error_raised(cores, count: int) -> None:
    def refuse() -> None:
        raise OsoError("this cannot be drawn")

    cores(count)
    with pytest.raises(OsoError, match="this cannot be drawn"):
        drawn([plan(0), plan(1, refuse), plan(3)])


def test_draw_in_background_killed_process_raises(cores) -> None:
    cores(2)
    parent = os.getpid()

    def die() -> None:
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(OsoError, match="was killed; free memory"):
        drawn([plan(0), plan(1, die), plan(3)])
