"""Provenance: when and where a report and its rows were made."""

import os
import time

import pandas as pd

from oso_dp import labels


def made_on() -> str:
    """The date of the report; from $SOURCE_DATE_EPOCH if set, for reproducible builds."""
    at = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime("%Y-%m-%d", time.gmtime(int(at) if at else None))


def devices(runs: pd.DataFrame) -> str:
    return ", ".join(sorted(runs["device"].dropna().unique())) or labels.DASH


def provenance(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """The provenance of the rows: pairs of a name and its values."""
    names = {
        "package version": "package_version",
        "code hash": "code_hash",
        "torch version": "torch_version",
        "device": "device",
        "delta": "delta",
        "search accounting": "search_accounting",
        "sampling": "sampling",
        "batch size (expected)": "batch_size",
        "epochs": "epochs",
    }
    pairs = []
    for label, column in names.items():
        values = sorted(runs[column].dropna().unique())
        text = ", ".join(
            str(v).removesuffix(".0") if isinstance(v, float) else str(v) for v in values
        )
        pairs.append((label, text or labels.DASH))
    total = runs["wall_seconds"].sum(min_count=1)
    time_taken = "" if labels.is_missing(total) else f", {labels.format_duration(total)} in total"
    pairs.append(("runs", f"{len(runs):,}{time_taken}"))
    return pairs
