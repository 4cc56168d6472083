"""Where and when a report's rows and the report itself were made."""

import os
import time

import pandas as pd

from oso_dp import labels


def made_on() -> str:
    """The day of the report; $SOURCE_DATE_EPOCH's, where a build is to be the same to the byte."""
    at = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime("%Y-%m-%d", time.gmtime(int(at) if at else None))


def devices(runs: pd.DataFrame) -> str:
    return ", ".join(sorted(runs["device"].dropna().unique())) or labels.DASH


def provenance(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Where the rows come from: pairs of a name and its values."""
    names = {
        "package version": "package_version",
        "code hash": "code_hash",
        "torch version": "torch_version",
        "device": "device",
        "delta": "delta",
        "how tuning is accounted for": "search_accounting",
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
    time_taken = "" if labels.is_missing(total) else f", {labels.format_duration(total)} in sum"
    pairs.append(("runs", f"{len(runs):,}{time_taken}"))
    return pairs
