"""Draw figures in parallel processes, since drawing takes most of a report's time."""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from oso_dp.errors import OsoError
from oso_dp.reporting.figures import layout
from oso_dp.reporting.figures.figure_spec import FigureSpec

_MAX_PROCESSES = 4  # each process copies the parts of the study that it changes


@dataclass(frozen=True)
class RenderedFigure:
    """A figure in all file formats."""

    png: bytes
    pdf: bytes
    link: str  # the page's image source


@contextmanager
def draw_in_background(plans: Sequence[FigureSpec]) -> Iterator[Iterator[RenderedFigure | None]]:
    """Draw each plan's figure while the block runs; None where there is nothing to show.

    The result does not depend on the number of cores. Raises OsoError if a process is killed.
    """
    processes = min(_MAX_PROCESSES, _cores(), len(plans))
    if processes < 2 or sys.platform != "linux":
        yield map(_draw, plans)
        return
    # Plans contain functions and the study; a forked process has them without pickling.
    global _plans
    _plans = plans
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"))
    try:
        with warnings.catch_warnings():
            # Newer Pythons, and JAX where it is loaded, warn of forks beside threads; none draws.
            for category in (DeprecationWarning, RuntimeWarning):
                warnings.filterwarnings("ignore", r".*\bfork\(\)", category)
            figures = pool.map(_draw_one, range(len(plans)))
        yield figures
    except BrokenProcessPool:
        raise OsoError(
            "a process that draws figures was killed; free memory and try again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        _plans = ()


_plans: Sequence[FigureSpec] = ()


def _draw_one(index: int) -> RenderedFigure | None:
    return _draw(_plans[index])


def _draw(plan: FigureSpec) -> RenderedFigure | None:
    with layout.theme():
        figure = plan.draw()
        if figure is None:
            return None
        return RenderedFigure(layout.to_png(figure), layout.to_pdf(figure), layout.to_link(figure))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
