"""The label of a variant: a learning-rate schedule and weight averaging (EMA), in words."""

import pandas as pd


def variant_label(schedule: str | None, averaging: float | None) -> str:
    """The label of the schedule and of the averaging's decay, as in the rows; empty without."""
    words = [] if pd.isna(schedule) else ["rate falling"]
    words += [] if pd.isna(averaging) else [f"averaged, {averaging:g}"]
    return ", ".join(words)


def variant_labels(rows: pd.DataFrame) -> list[str]:
    """The label of each row."""
    return [variant_label(*pair) for pair in zip(rows["schedule"], rows["averaging"], strict=True)]
