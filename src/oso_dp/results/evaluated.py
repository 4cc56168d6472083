"""What the two tables say together: every run was evaluated, as its row says, and none twice."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from oso_dp.data.catalogue import DATASETS
from oso_dp.results.schema import KEYS, SPLITS


@dataclass(frozen=True)
class _Numbers:
    """The evaluations' keys as whole numbers, which are quick to compare by the million."""

    run: np.ndarray  # positions in `run_ids`
    run_ids: pd.Index
    step: np.ndarray
    split: np.ndarray  # positions in SPLITS
    metric: np.ndarray  # positions in `metrics`
    metrics: pd.Index

    @classmethod
    def of(cls, evaluations: pa.Table) -> "_Numbers":
        run, run_ids = _codes(evaluations["run_id"])
        split, splits = _codes(evaluations["split"])
        metric, metrics = _codes(evaluations["metric"])
        here = np.array([SPLITS.index(name) for name in splits], dtype=np.int64)
        step = evaluations["step"].to_numpy()
        return cls(run, run_ids, step, here[split], metric, metrics)

    @property
    def moment(self) -> np.ndarray:
        """Of each row, its run and step."""
        return self.run * (int(self.step.max(initial=0)) + 1) + self.step


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, pd.Index]:
    """Of texts without null: positions, and the texts."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    return whole.indices.to_numpy().astype(np.int64), pd.Index(whole.dictionary.to_pylist())


def complaint(runs: pd.DataFrame, evaluations: pa.Table) -> str | None:
    """The first contradiction; the values of both tables keep the rules of their columns."""
    key = KEYS["evaluations"]
    if any(evaluations[name].null_count for name in key):
        unnamed = len(evaluations) - len(evaluations.select(key).drop_null())
        return f"{unnamed} rows without {' or '.join(key)}"
    numbers = _Numbers.of(evaluations)
    return (
        _repeated(numbers)
        or _unknown(runs, numbers)
        or _without_test(numbers)
        or _other_steps(runs, numbers)
        or _other_metric(runs, numbers)
    )


def _repeated(numbers: _Numbers) -> str | None:
    keys = numbers.moment * len(SPLITS) + numbers.split
    if (np.diff(keys) > 0).all():  # in the order in which a store is written
        return None
    repeated = pd.Series(keys).duplicated().to_numpy()
    if not repeated.any():
        return None
    return (
        f"run {_first(numbers, repeated)} stands there more than once "
        f"({int(repeated.sum())} rows repeat another's {', '.join(KEYS['evaluations'])})"
    )


def _unknown(runs: pd.DataFrame, numbers: _Numbers) -> str | None:
    evaluated = set(numbers.run_ids)
    if unknown := evaluated - set(runs["run_id"]):
        return (
            f"evaluations of run {min(unknown)} have no row in runs.parquet; "
            "one of the two files is older or incomplete: collect the run's part again"
        )
    finished = set(runs.loc[runs["status"] == "finished", "run_id"])
    if unseen := finished - evaluated:  # one that diverged may have had none
        return (
            f"run {min(unseen)} is finished, but has no row in evaluations.parquet; "
            f"{len(unseen)} such runs: a part is missing, or one of the two files is older: "
            "collect their parts again"
        )
    return None


def _without_test(numbers: _Numbers) -> str | None:
    """Every evaluation has the whole test set; its halves are more, not instead."""
    on_test = numbers.split == SPLITS.index("test")
    if on_test.sum() == len(pd.unique(numbers.moment)):
        return None
    without = ~np.isin(numbers.moment, numbers.moment[on_test])
    at = int(numbers.step[without.argmax()])
    return f"run {_first(numbers, without)}: its evaluation at step {at} lacks the split test"


def _other_steps(runs: pd.DataFrame, numbers: _Numbers) -> str | None:
    """A finished run is evaluated at its last step; no run is after its end."""
    last = pd.Series(numbers.step).groupby(numbers.run).max().set_axis(numbers.run_ids)
    at = last.reindex(runs["run_id"]).to_numpy(float)  # NaN: diverged before its first
    finished = (runs["status"] == "finished").to_numpy()
    ends = np.where(finished, runs["steps"], runs["diverged_at"]).astype(float)
    for row in np.flatnonzero(at > ends)[:1]:
        run = runs["run_id"].iloc[row]
        return f"run {run}: evaluated at step {at[row]:.0f}, but it ended at {ends[row]:.0f}"
    for row in np.flatnonzero(finished & (at < ends))[:1]:
        run = runs["run_id"].iloc[row]
        return (
            f"run {run} is finished, but was not evaluated at its last step, {ends[row]:.0f} "
            f"(only until {at[row]:.0f})"
        )
    return None


def _other_metric(runs: pd.DataFrame, numbers: _Numbers) -> str | None:
    """A data set has one metric."""
    kinds = pd.unique(numbers.run * len(numbers.metrics) + numbers.metric)
    run, metric = np.divmod(kinds, max(1, len(numbers.metrics)))
    datasets = numbers.run_ids[run].map(runs.set_index("run_id")["dataset"])
    names = numbers.metrics[metric]
    for run_id, dataset, name in zip(numbers.run_ids[run], datasets, names, strict=True):
        if dataset in DATASETS and DATASETS[dataset].metric != name:
            allowed = DATASETS[dataset].metric
            return f"run {run_id}: metric {name!r}: of {dataset} it is {allowed}"
    return None


def _first(numbers: _Numbers, rows: np.ndarray) -> str:
    return str(numbers.run_ids[numbers.run[rows.argmax()]])
