"""What was measured beside the runs: cosines, times, known words, in the results folder."""

import json
from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.results.facts import FACTS


def read_facts(results: Path) -> dict[str, dict[str, float]]:
    """Data set -> part -> share of words with a vector, from `data.json` in a results folder.

    The file maps a data set to facts, of which `known_words` (part to share) is read; empty without
    a file. Raises OsoError for a file of another form.
    """
    path = Path(results) / FACTS
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        shares = {
            name: {part: float(share) for part, share in facts.get("known_words", {}).items()}
            for name, facts in stored.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        raise OsoError(
            f"{path}: must map each data set to its facts, with known_words a map of numbers"
        ) from None
    for name, parts in shares.items():
        for part, share in parts.items():
            if not 0 <= share <= 1:
                raise OsoError(f"{path}: {name}, known_words {part}: {share:g} is not in 0 to 1")
    return shares


COSINE = "cosine.csv"  # in a results folder
COSINE_COLUMNS = [
    *("dataset", "method", "k", "epsilon", "learning_rate", "noise_multiplier"),
    *("step", "threshold", "run_threshold", "realisations"),
    *("batch_mean", "batch_std", "data_mean", "data_std"),
]


def read_cosine(path: Path) -> pd.DataFrame:
    """The table, columns `COSINE_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a file that is none of ours.
    """
    if not path.exists():
        return pd.DataFrame(columns=COSINE_COLUMNS)
    try:
        found = pd.read_csv(path)
        numbers = found[COSINE_COLUMNS].drop(columns=["dataset", "method"])
        whole = numbers.drop(columns="run_threshold").astype("float64").notna().all(axis=None)
    except (OSError, ValueError, KeyError) as error:
        raise OsoError(
            f"{path}: not a table of cosines ({' '.join(str(error).split())}); `oso cosine` "
            "writes one"
        ) from None
    if found.empty or not whole:
        raise OsoError(f"{path}: rows or numbers are missing; `oso cosine` writes a whole table")
    if len(found[["dataset", "method", "k", "epsilon", "learning_rate"]].drop_duplicates()) > 1:
        raise OsoError(f"{path}: holds more than one run; keep each in a file of its own")
    return found


STEP_TIMES = "step_times.csv"  # in a results folder
STEP_TIME_COLUMNS = [
    *("dataset", "model", "device", "precision", "method", "rival"),
    *("turns", "ratio", "low", "high"),  # of the seconds per step, with its 95 % interval
]


def read_step_times(path: Path) -> pd.DataFrame:
    """The table, columns `STEP_TIME_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a file that is none of ours.
    """
    if not path.exists():
        return no_step_times()
    try:
        found = pd.read_csv(path)
        numbers = found[["turns", "ratio", "low", "high"]].astype("float64")
        sound = bool(
            found[STEP_TIME_COLUMNS].notna().all(axis=None) and (numbers > 0).all(axis=None)
        )
    except (OSError, ValueError, KeyError) as error:
        raise OsoError(
            f"{path}: not a table of step times ({' '.join(str(error).split())}); "
            "`make step-times` writes one"
        ) from None
    if found.empty or not sound:
        raise OsoError(f"{path}: rows or numbers are missing; `make step-times` writes a table")
    return found


def no_step_times() -> pd.DataFrame:
    """A table without a row."""
    return pd.DataFrame(columns=STEP_TIME_COLUMNS)
