"""A study of which every figure can be drawn, and what stands in the axes of a figure."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from tests.stores import Store, grid_table

from oso_dp.analysis.result_set import ResultSet

NO_MARKER = ("None", "", None, "|", "_")  # the last two are the caps of bars


def every_kind() -> ResultSet:
    """Data sets with and without paper, of accuracies and errors, at four budgets and at one; all
    ways to search and to guess. Values go up and down over each axis."""
    store, chance = Store(), np.random.default_rng(7)
    for dataset, metric, k, epsilons in (
        ("mnist", "accuracy", 9, (3.0, 5.0, 7.0, 9.0)),
        ("glyphs", "accuracy", 2, (3.0, 5.0, 9.0)),
        ("fashion_mnist", "mse", 2, (9.0,)),
    ):
        least, most = (0.02, 0.08) if metric == "mse" else (0.7, 0.95)
        for run in _runs(k, epsilons):
            curve = tuple(chance.uniform(least, most) + chance.uniform(0.0, 0.01, 4))
            known = {"dataset": dataset, "metric": metric, "k": k, "values": curve}
            halves = tuple((value - 0.001, value - 0.002) for value in curve)
            store.add(**{**known, "halves": halves, **run})
    cosine = [
        {"dataset": "mnist", "method": "online", "k": 9, "epsilon": 9.0, "learning_rate": 1.0}
        | {"noise_multiplier": 0.8, "realisations": 20, "step": step, "threshold": threshold}
        | {"run_threshold": 0.3, "batch_mean": mean, "batch_std": 0.1}
        | {"data_mean": mean / 2, "data_std": 0.05}
        for step in (100, 950)
        for threshold, mean in ((1.0, 0.7), (0.01, 0.3), (100.0, -0.1), (0.1, 0.1))
    ]
    signs = pd.DataFrame({"step": np.arange(1, 131)})
    for name in ("direction", "gradient"):
        for column in (name, f"true_{name}", f"{name}_z"):
            signs[column] = chance.normal(size=len(signs))
    known = {"run_id": "a", "dataset": "mnist", "method": "online", "k": 9, "epsilon": 9.0}
    signs = signs.assign(**known, threshold=0.1, learning_rate=1.0)
    frames = *store.frames(), grid_table()
    return ResultSet(*frames, cosine=pd.DataFrame(cosine), signs=signs)


LAID = {"rate falling": {"schedule": "linear"}, "averaged, 0.99": {"averaging": 0.99}}


def _runs(k: int, epsilons: Iterable[float]) -> Iterator[dict]:
    """Of one data set, each with what `Store.add` takes beside its values."""
    rates = "learning_rate_rate=0.0025, threshold_rate=0.0025"
    for epsilon, seed, rate in itertools.product(epsilons, (0, 1), (0.1, 1.0)):
        at = {"epsilon": epsilon, "seed": seed, "learning_rate": rate}
        searched = at | {"noise_multiplier": 1000.0 / epsilon}
        yield searched | {"method_options": rates}
        yield searched | {"method": "auto_s"}
        yield searched | {"method": "adam_wosm", "threshold": 10.0}
        for threshold in (0.5, 5.0):
            yield searched | {"method": "fixed_threshold", "threshold": threshold}
        for quantile in (0.1, 0.3, 0.5, 0.7, 0.9):
            yield searched | {"method": "fixed_quantile", "quantile": quantile}
        for method in ("online", "auto_s"):
            yield at | {
                "method": method,
                "k": 2,
                "search_accounting": "random_stopping",
                "stopping_distribution": "logarithmic",
            }
            if k != 2:
                yield searched | {"method": method, "k": 2}
    for epsilon, seed, rate in itertools.product(epsilons, (0, 1), (0.1, 0.316228, 1.0, 3.0)):
        at = {"epsilon": epsilon, "seed": seed, "learning_rate": rate}
        alone = at | {"search_accounting": "single", "noise_multiplier": 50.0}
        lower = {"halves": ((0.01, 0.01),) * 4}  # on each half than on the whole
        yield alone | {"method": "auto_s", "threshold": 1.0} | lower
        yield alone
        for variant in LAID.values():
            yield alone | variant
    for seed in (0, 1):
        yield {"method": "no_dp", "seed": seed, "learning_rate": 0.01}


def marks(axes: Axes) -> list[Line2D]:
    """The lines with markers of their own."""
    return [line for line in axes.lines if line.get_marker() not in NO_MARKER]


def hollow(line: Line2D) -> bool:
    return to_hex(line.get_markerfacecolor()) == "#ffffff"


def outside(axes: Axes, cut_below: bool = False) -> list[tuple[float, float]]:
    """What is drawn there and not within the axes: points, ends of bars, corners of fields.

    cut_below: the figure says that values far below are cut off.
    """
    left, right = sorted(axes.get_xlim())
    low, high = sorted(axes.get_ylim())
    slack_x, slack_y = 1e-9 * max(abs(left), abs(right)), 1e-9 * max(abs(low), abs(high))
    low = -np.inf if cut_below else low
    return [
        (float(x), float(y))
        for x, y in _places(axes)
        if not (left - slack_x <= x <= right + slack_x and low - slack_y <= y <= high + slack_y)
    ]


def _places(axes: Axes) -> np.ndarray:
    """(x, y) of all that has both in the axes' own numbers; of lines across them the one it has."""
    middle = np.mean(axes.get_xlim()), np.mean(axes.get_ylim())
    corners = []
    for line in axes.lines:
        x, y = (np.asarray(values, float) for values in line.get_data())
        across = line.get_transform() == axes.get_yaxis_transform()
        down = line.get_transform() == axes.get_xaxis_transform()
        corners.append(np.column_stack([x * 0 + middle[0] if across else x,
                                        y * 0 + middle[1] if down else y]))  # fmt: skip
    for patch in axes.patches:
        if patch.get_data_transform() == axes.transData:
            path = patch.get_patch_transform().transform_path(patch.get_path())
            corners.append(path.vertices)
    for collection in axes.collections:
        if isinstance(collection, QuadMesh):
            corners.append(collection.get_coordinates().reshape(-1, 2))
        elif isinstance(collection, LineCollection):
            corners += collection.get_segments()
        else:
            corners += [path.vertices for path in collection.get_paths()]
    for text in axes.texts:
        if getattr(text, "xycoords", "") == "data":
            corners.append(np.array([text.xy], float))
    places = np.concatenate([np.empty((0, 2)), *(np.reshape(one, (-1, 2)) for one in corners)])
    return places[np.isfinite(places).all(axis=1)]


def falling(axes: Axes) -> list[np.ndarray]:
    """Of joined lines and of stairs the x of those that go back to the left."""
    joined = [np.asarray(line.get_xdata(), float) for line in axes.lines
              if line.get_linestyle() not in ("None", "", " ")]  # fmt: skip
    joined += [patch.get_data().edges for patch in axes.patches if hasattr(patch, "get_data")]
    return [x for x in joined if (np.diff(x) < 0).any()]
