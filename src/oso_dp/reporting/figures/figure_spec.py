"""A figure before and after it is drawn: what it is called, what it shows, what it is about."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureSpec:
    """A figure that will be drawn, unless `draw` finds nothing to show and gives None."""

    name: str  # file name without its ending
    dataset: str  # empty where it is about none
    k: int | None  # None: over all k
    kind: str  # metric, beyond, curves, threshold, learning_rate, grid, noise, search_cost, ...
    caption: str
    draw: Callable[[], Figure | None]
    measured: bool = True  # False where only the paper's values are in it
    data: pd.DataFrame | None = None  # its numbers, where no table of the report has them


@dataclass(frozen=True)
class WrittenFigure:
    """A figure that was written: what the page needs to show it."""

    name: str
    dataset: str
    k: int | None
    kind: str
    caption: str
    link: str  # the page's image source
    width: int  # of the PNG, in pixels
    measured: bool
    data: bool  # whether a CSV stands beside it

    @property
    def wide(self) -> bool:
        """Too wide to be read when shrunk to a phone's width."""
        return self.width > 1600
