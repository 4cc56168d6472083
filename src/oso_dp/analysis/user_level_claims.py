"""Tests of claims about user-level privacy that compare more than two methods' best points.

Each rests on the rows of `config/users.yaml` and its extensions, by the rule of `claim_tests`.
"""

from collections.abc import Callable

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    ClaimResult,
    ClaimTest,
    classify,
)
from oso_dp.analysis.side_measurements import WHOLE
from oso_dp.analysis.verdicts import Sample, average_over_grids, difference, margin_of

_PERCENT = 100  # the printed unit of accuracies, in which margins are


def median_without_search(evidence: ClaimData, dataset: str) -> ClaimResult:
    """Test that FixedQuantile at the median is at least as good as the best fixed C.

    Both with their best learning rate, and with the noise of a whole search.
    """
    if evidence.values is None:
        return ClaimResult(NOT_APPLICABLE)
    values = evidence.values[evidence.values["dataset"] == dataset]
    median = values[(values["method"] == "fixed_quantile") & (values["quantile"] == 0.5)]
    fixed = values[values["method"] == "fixed_threshold"]
    pairs = []
    for grid, one in median.groupby(["k", "epsilon", "local"]):
        for same, other in fixed.groupby(["k", "epsilon", "local"]):
            if same == grid:
                pairs.append((_best(one, ["learning_rate"]), _best(other, _POINT)))
    known = [(one, other) for one, other in pairs if min(one.seeds, other.seeds) > 1]
    if not known:
        return ClaimResult(NOT_RUN, "no grid of both with two seeds")
    ours, theirs = (average_over_grids(side) for side in zip(*known, strict=True))
    advantage = difference([(ours, theirs)])
    assert advantage is not None  # two seeds or more
    margin = margin_of(dataset)
    text = (
        f"FixedQuantile at γ = 0.5 over FixedThreshold {_signed(advantage.mean)} points "
        f"[{_signed(advantage.low)}, {_signed(advantage.high)}], "
        f"M = {margin:.2f}, {len(known)} grids"
    )
    numbers = {"advantage": advantage.mean, "low": advantage.low, "high": advantage.high}
    verdict = classify(advantage, -margin, float("inf"))
    return ClaimResult(verdict, text, {**numbers, "margin": margin, "grids": len(known)})


_POINT = ["learning_rate", "threshold"]


def _best(rows: pd.DataFrame, point: list[str]) -> Sample:
    """The best point's values over its seeds, in percent; of those with the most seeds."""
    found = [
        Sample(_PERCENT * one["value"].mean(), _PERCENT * one["value"].std(), len(one))
        for _, one in rows.groupby(point)
    ]
    most = max(sample.seeds for sample in found)
    return max((one for one in found if one.seeds == most), key=lambda one: one.mean)


def finds_the_quantile(start: float = 50, rounds: int = 50, within: float = 1.5) -> ClaimTest:
    """Make the test that the geometric update finds a far quantile, and the linear one does not.

    Args:
        start: the least ratio of C to the quantile at the first step.
        rounds: steps until C is compared with it.
        within: the factor within which C has found it.
    """

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        if evidence.update_norms is None:
            return ClaimResult(NOT_APPLICABLE)
        rows = evidence.update_norms
        rows = rows if rows.empty else rows[(rows["dataset"] == dataset) & (rows["layer"] == WHOLE)]
        ratios = {}
        for (method, _), run in rows.groupby(["method", "run_id"]) if len(rows) else ():
            ratio = _ratio_to_quantile(run)
            if ratio is not None and ratio[1] >= start and rounds < ratio.index.max():
                ratios[method] = float(ratio[ratio.index > rounds].iloc[0])
        if set(ratios) != {"fixed_quantile", "fixed_quantile_linear"}:
            return ClaimResult(NOT_RUN, "`oso diagnose updates` was not run from far above")
        found = {name: 1 / within <= ratio <= within for name, ratio in ratios.items()}
        verdict = HOLDS if found == _GEOMETRIC_ALONE else FAILS
        text = ", ".join(
            f"{labels.method_label(name)}: C is {ratio:.3g} times the quantile"
            for name, ratio in sorted(ratios.items())
        )
        return ClaimResult(verdict, f"after {rounds} steps, one run each: {text}")

    return judge


_GEOMETRIC_ALONE = {"fixed_quantile": True, "fixed_quantile_linear": False}


def _ratio_to_quantile(run: pd.DataFrame) -> "pd.Series | None":
    """C over the quantile that it is to follow, by step; None for a run without a quantile."""
    gamma = run["quantile"].iloc[0]
    if labels.is_missing(gamma):
        return None
    ratio = run["threshold"] / run[f"q{round(100 * float(gamma))}"]
    return ratio.set_axis(run["step"])


def best_threshold_varies(column: str) -> ClaimTest:
    """Make the test that FixedThreshold's best C differs between values of a column.

    At each value of the column, the best C of that value must be better than that of the others.
    An equal best C at an end of the grid decides nothing: beyond it they may differ. Judges the
    first grid (k, epsilon) with two values of the column or more.
    """

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        if evidence.values is None:
            return ClaimResult(NOT_APPLICABLE)
        values = evidence.values
        values = values[(values["dataset"] == dataset) & (values["method"] == "fixed_threshold")]
        for _, grid in values.groupby(["k", "epsilon", "grid_runs"]):
            if grid[column].nunique() > 1:
                return _compare_best(grid, column)
        return ClaimResult(NOT_RUN, f"one value of {column} only")

    return judge


def _compare_best(grid: pd.DataFrame, column: str) -> ClaimResult:
    samples: dict[str, dict[float, Sample]] = {
        value: {
            threshold: _best(rows, ["learning_rate"])
            for threshold, rows in part.groupby("threshold")
        }
        for value, part in grid.groupby(column)
    }
    best = {value: max(found, key=_mean_of(found)) for value, found in samples.items()}
    text = "; ".join(f"{value}: C = {threshold:.3g}" for value, threshold in best.items())
    if len(set(best.values())) == 1:
        (only,) = set(best.values())
        if only in (grid["threshold"].min(), grid["threshold"].max()):
            return ClaimResult(UNDECIDED, f"{text}; an end of the grid")
        return ClaimResult(FAILS, text)
    verdicts = set()
    for value, found in samples.items():
        for other in {*best.values()} - {best[value]}:
            lead = difference([(found[best[value]], found[other])])
            verdicts.add(HOLDS if lead is not None and lead.low > 0 else UNDECIDED)
            more = _signed(found[best[value]].mean - found[other].mean)
            text += f"; {value}: {more} points over C = {other:.3g}"
    return ClaimResult(UNDECIDED if UNDECIDED in verdicts else HOLDS, text)


def _mean_of(found: dict[float, Sample]) -> Callable[[float], float]:
    return lambda threshold: found[threshold].mean


def _signed(value: float) -> str:
    return labels.format_signed(value)
