"""Side measurements in a results folder, such as cosines, update norms and step times."""

from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.files import check_regular, parse_json
from oso_dp.results.vocabulary_coverage import COVERAGE_FILE


def read_vocabulary_coverage(results: Path) -> dict[str, dict[str, float]]:
    """Data set -> split -> fraction of words with a vector, from `vocabulary_coverage.json`.

    Empty without a file. Raises OsoError for a malformed file.
    """
    path = Path(results) / COVERAGE_FILE
    if not path.exists():
        return {}
    check_regular(path)
    try:
        stored = parse_json(path.read_text(encoding="utf-8"))
        fractions = {
            name: {part: float(fraction) for part, fraction in facts.get("known_words", {}).items()}
            for name, facts in stored.items()
        }
    except (OSError, ValueError, AttributeError, TypeError, OverflowError):
        raise OsoError(
            f"{path}: must map each data set to an object whose known_words maps splits to numbers"
        ) from None
    for name, parts in fractions.items():
        for part, fraction in parts.items():
            if not 0 <= fraction <= 1:
                raise OsoError(
                    f"{path}: {name}, known_words {part}: {fraction:g}; must be between 0 and 1"
                )
    return fractions


HASHES = {"run_id": str, "code_hash": str}  # their digits may look like a number
COSINE = "cosine.csv"  # in a results folder
COSINE_COLUMNS = [
    *("dataset", "method", "k", "epsilon", "learning_rate", "noise_multiplier"),
    *("step", "threshold", "run_threshold", "realisations"),
    *("batch_mean", "batch_std", "data_mean", "data_std"),
]


def read_cosine(path: Path) -> pd.DataFrame:
    """The table, columns `COSINE_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a malformed file.
    """
    known = [name for name in COSINE_COLUMNS[2:] if name != "run_threshold"]
    table = _read(path, COSINE_COLUMNS, known, known, "cosines", "`oso diagnose cosine`")
    if len(table[["dataset", "method", "k", "epsilon", "learning_rate"]].drop_duplicates()) > 1:
        raise OsoError(f"{path}: contains more than one run; store each in a separate file")
    return table


SIGNS = "adaptation_signs.csv"  # in a results folder
SIGN_COLUMNS = [
    *("dataset", "method", "k", "epsilon", "run_id", "step", "threshold", "learning_rate"),
    *("direction", "gradient", "true_direction", "true_gradient", "direction_z", "gradient_z"),
    *("true_two_apart", "clipped"),
]


def read_signs(path: Path) -> pd.DataFrame:
    """The table, columns `SIGN_COLUMNS` and more, by run and step; empty where there is no file.

    A cosine is null where a sum was zero. Raises OsoError for a malformed file, and for a run with
    a missing or repeated step.
    """
    numbers = [name for name in SIGN_COLUMNS[2:] if name != "run_id"]
    needed = SIGN_COLUMNS[: SIGN_COLUMNS.index("direction")]
    table = _read(path, SIGN_COLUMNS, needed, numbers, "signs", "`oso diagnose signs`")
    table = table.sort_values(["run_id", "step"], ignore_index=True)
    if not (table.groupby("run_id")["step"].diff().dropna() == 1).all():
        raise OsoError(
            f"{path}: steps are missing or appear twice; `oso diagnose signs` writes a whole run"
        )
    return table


UPDATE_NORMS = "update_norms.csv"  # in a results folder
WHOLE = "all"  # in its column `layer`: all layers as one vector
ROOT = "(model)"  # there: of a model that is one layer, or has parameters beside its layers
UPDATE_NORM_COLUMNS = [
    *("dataset", "model", "method", "k", "epsilon", "quantile", "run_id", "step", "threshold"),
    *("learning_rate", "layer", "mean", "q10", "q30", "q50", "q70", "q90"),
]


def read_update_norms(path: Path) -> pd.DataFrame:
    """The table, columns `UPDATE_NORM_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a malformed file.
    """
    columns = UPDATE_NORM_COLUMNS
    numbers = [name for name in columns[columns.index("step") :] if name != "layer"]
    needed = [name for name in columns if name != "quantile"]
    return _read(path, columns, needed, numbers, "update norms", "`oso diagnose updates`")


WRITER_SERIES = "writer_series.csv"  # in a results folder
WRITER_SERIES_COLUMNS = [
    *("dataset", "model", "method", "k", "epsilon", "seed", "learning_rate", "run_id"),
    *("code_hash", "series", "accuracy"),
]


def read_writer_series(path: Path) -> pd.DataFrame:
    """The table, columns `WRITER_SERIES_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a malformed file.
    """
    columns = WRITER_SERIES_COLUMNS
    needed = [name for name in columns if name != "epsilon"]  # which no_dp lacks
    numbers = ["k", "epsilon", "seed", "accuracy"]
    return _read(path, columns, needed, numbers, "writer series", "`oso diagnose series`")


PATE_PUBLISHED = "pate_published.csv"  # in a results folder
PATE_PUBLISHED_COLUMNS = [
    *("quantity", "source", "printed", "ours", "tolerance", "agrees", "remark"),
]


def read_pate_published(path: Path) -> pd.DataFrame:
    """The table, columns `PATE_PUBLISHED_COLUMNS`; empty where there is no file.

    Raises OsoError for a malformed file.
    """
    columns = PATE_PUBLISHED_COLUMNS
    numbers = ["printed", "ours", "tolerance"]
    return _read(path, columns, columns[:-1], numbers, "published costs", "`oso pate published`")


STEP_TIMES = "step_times.csv"  # in a results folder
STEP_TIME_COLUMNS = [
    *("dataset", "model", "device", "precision", "method", "rival"),
    *("turns", "ratio", "low", "high"),  # of the seconds per step, with its 95 % interval
]


def read_step_times(path: Path) -> pd.DataFrame:
    """The table, columns `STEP_TIME_COLUMNS` and more; empty where there is no file.

    Raises OsoError for a malformed file.
    """
    positive = ["turns", "ratio", "low", "high"]
    columns = STEP_TIME_COLUMNS
    table = _read(path, columns, columns, positive, "step times", "`make bench-step-time`")
    if not (table[positive] > 0).all(axis=None):
        raise OsoError(f"{path}: rows or numbers are missing; {', '.join(positive)} must be > 0")
    return table


def _read(
    path: Path,
    columns: list[str],
    needed: list[str],
    numbers: list[str],
    content: str,
    command: str,
) -> pd.DataFrame:
    """The file's rows, with a value in each of `needed` and numbers in `numbers`.

    Empty without a file.
    """
    if not path.exists():
        return pd.DataFrame(columns=columns)
    try:
        table = pd.read_csv(path, dtype=HASHES)
        whole = table[columns].notna()[needed].all(axis=None)
        table[numbers].astype("float64")
    except (OSError, ValueError, KeyError) as error:
        raise OsoError(
            f"{path}: not a table of {content} ({' '.join(str(error).split())}); "
            f"{command} writes one"
        ) from None
    if table.empty or not whole:
        raise OsoError(f"{path}: rows or numbers are missing; {command} writes a whole table")
    return table
