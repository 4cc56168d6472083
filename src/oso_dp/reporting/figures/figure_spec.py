"""Figure specifications, and figures after they are written."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureSpec:
    """A figure to draw; `draw` returns None if there is nothing to show."""

    name: str  # file name without suffix
    dataset: str  # empty if not about one data set
    k: int | None  # None: over all k
    kind: str  # metric, beyond, curves, threshold, learning_rate, grid, noise, search_cost, ...
    caption: str
    draw: Callable[[], Figure | None]
    measured: bool = True  # False if it shows only the paper's values
    data: pd.DataFrame | None = None  # its numbers, if no table of the report has them


@dataclass(frozen=True)
class WrittenFigure:
    """A written figure, with the data that the page needs."""

    name: str
    dataset: str
    k: int | None
    kind: str
    caption: str
    link: str  # the page's image source
    width: int  # of the PNG, in pixels
    measured: bool
    data: bool  # whether it has a CSV file

    @property
    def wide(self) -> bool:
        """Whether it is too wide to be legible on a phone."""
        return self.width > 1600
