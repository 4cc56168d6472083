"""Tests of claims about user-level privacy that compare more than two methods' best points.

Each rests on the rows of `config/users.yaml` and its extensions, by the rule of `claim_tests`.
"""

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
    mean, low, high = map(labels.format_signed, (advantage.mean, advantage.low, advantage.high))
    text = (
        f"FixedQuantile at γ = 0.5 over FixedThreshold {mean} points [{low}, {high}], "
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


# The least ratio of C to the quantile at the first step; the steps until C is compared with it; the
# factor within which C has then found it.
_FAR, _ROUNDS, _NEAR = 50, 50, 1.5


def finds_the_quantile(evidence: ClaimData, dataset: str) -> ClaimResult:
    """Test that the geometric update finds a far quantile, and the linear one does not."""
    if evidence.update_norms is None:
        return ClaimResult(NOT_APPLICABLE)
    rows = evidence.update_norms
    rows = rows if rows.empty else rows[(rows["dataset"] == dataset) & (rows["layer"] == WHOLE)]
    ratios = {}
    for (method, _), run in rows.groupby(["method", "run_id"]) if len(rows) else ():
        ratio = _ratio_to_quantile(run)
        if ratio is not None and ratio[1] >= _FAR and ratio.index.max() > _ROUNDS:
            ratios[method] = float(ratio[ratio.index > _ROUNDS].iloc[0])
    if set(ratios) != {"fixed_quantile", "fixed_quantile_linear"}:
        return ClaimResult(NOT_RUN, "`oso diagnose updates` was not run from far above")
    found = {name: 1 / _NEAR <= ratio <= _NEAR for name, ratio in ratios.items()}
    verdict = HOLDS if found == _GEOMETRIC_ALONE else FAILS
    text = ", ".join(
        f"{labels.method_label(name)}: C is {ratio:.3g} times the quantile"
        for name, ratio in sorted(ratios.items())
    )
    return ClaimResult(verdict, f"after {_ROUNDS} steps, one run each: {text}")


_GEOMETRIC_ALONE = {"fixed_quantile": True, "fixed_quantile_linear": False}


def _ratio_to_quantile(run: pd.DataFrame) -> "pd.Series | None":
    """C over the quantile that it is to follow, by step; None for a run without a quantile."""
    gamma = run["quantile"].iloc[0]
    if labels.is_missing(gamma):
        return None
    ratio = run["threshold"] / run[f"q{round(100 * float(gamma))}"]
    return ratio.set_axis(run["step"])


def best_threshold_varies(evidence: ClaimData, dataset: str) -> ClaimResult:
    """Test that FixedThreshold's best C differs between ways of local training.

    With each of them, its best C must be better than that of the others. An equal best C at an end
    of the grid decides nothing: beyond it they may differ. Judges the first grid (k, epsilon) with
    two of them or more.
    """
    if evidence.values is None:
        return ClaimResult(NOT_APPLICABLE)
    values = evidence.values
    values = values[(values["dataset"] == dataset) & (values["method"] == "fixed_threshold")]
    for _, grid in values.groupby(["k", "epsilon", "grid_runs"]):
        if grid["local"].nunique() > 1:
            return _compare_best(grid)
    return ClaimResult(NOT_RUN, "one value of local only")


def _compare_best(grid: pd.DataFrame) -> ClaimResult:
    samples: dict[str, dict[float, Sample]] = {
        value: {
            threshold: _best(rows, ["learning_rate"])
            for threshold, rows in part.groupby("threshold")
        }
        for value, part in grid.groupby("local")
    }
    best = {value: max(found, key=lambda one: found[one].mean) for value, found in samples.items()}
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
            more = labels.format_signed(found[best[value]].mean - found[other].mean)
            text += f"; {value}: {more} points over C = {other:.3g}"
    return ClaimResult(UNDECIDED if UNDECIDED in verdicts else HOLDS, text)
