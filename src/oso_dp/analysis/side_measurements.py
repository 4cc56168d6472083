"""Side measurements in a results folder, such as cosines, update norms and step times."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.files import check_regular, parse_json
from oso_dp.results.vocabulary_coverage import COVERAGE_FILE

HASHES = {"run_id": str, "code_hash": str}  # their digits may look like a number


@dataclass(frozen=True)
class Measurement:
    """A CSV table of side measurements.

    Attributes:
        file: Its name in a results folder.
        columns: The columns that it must have.
        texts: Those that are not numbers.
        nullable: Those that may lack a value.
        content: What it measures, for messages.
        command: What writes it, for messages.
        find_error: Returns what else is wrong with a table, or None.
    """

    file: str
    columns: tuple[str, ...]
    texts: Collection[str]
    nullable: Collection[str]
    content: str
    command: str
    find_error: Callable[[pd.DataFrame], str | None] = lambda table: None

    def empty(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.columns)

    def read(self, path: Path) -> pd.DataFrame:
        """The table, with these and perhaps more columns; empty where there is no file.

        OsoError for a malformed file.
        """
        if not path.exists():
            return self.empty()
        try:
            table = pd.read_csv(path, dtype=HASHES)
            has_values = table[[*self.columns]].notna()
            has_values = has_values.drop(columns=[*self.nullable]).all(axis=None)
            table[[name for name in self.columns if name not in self.texts]].astype("float64")
        except (OSError, ValueError, KeyError) as error:
            raise OsoError(
                f"{path}: not a table of {self.content} ({' '.join(str(error).split())}); "
                f"{self.command} writes one"
            ) from None
        if table.empty or not has_values:
            raise OsoError(
                f"{path}: rows or numbers are missing; {self.command} writes a whole table"
            )
        if problem := self.find_error(table):
            raise OsoError(f"{path}: {problem}")
        return table


def _find_second_run(table: pd.DataFrame) -> str | None:
    runs = table[["dataset", "method", "k", "epsilon", "learning_rate"]].drop_duplicates()
    return "contains more than one run; store each in a separate file" if len(runs) > 1 else None


COSINES = Measurement(
    file="cosine.csv",
    columns=(
        *("dataset", "method", "k", "epsilon", "learning_rate", "noise_multiplier"),
        *("step", "threshold", "run_threshold", "realisations"),
        *("batch_mean", "batch_std", "data_mean", "data_std"),
    ),
    texts={"dataset", "method"},
    nullable={"dataset", "method", "run_threshold"},
    content="cosines",
    command="`oso diagnose cosine`",
    find_error=_find_second_run,
)


def _find_step_error(table: pd.DataFrame) -> str | None:
    if (table.groupby("run_id")["step"].diff().dropna() == 1).all():
        return None
    return "steps are missing, repeated or unsorted; `oso diagnose signs` writes a whole run"


ADAPTATION_SIGNS = Measurement(  # a cosine is null where a sum was zero
    file="adaptation_signs.csv",
    columns=(
        *("dataset", "method", "k", "epsilon", "run_id", "step", "threshold", "learning_rate"),
        *("direction", "gradient", "true_direction", "true_gradient", "direction_z", "gradient_z"),
        *("true_two_apart", "clipped"),
    ),
    texts={"dataset", "method", "run_id"},
    nullable={
        *("direction", "gradient", "true_direction", "true_gradient", "direction_z", "gradient_z"),
        *("true_two_apart", "clipped"),
    },
    content="signs",
    command="`oso diagnose signs`",
    find_error=_find_step_error,
)

WHOLE = "all"  # in the column `layer` of update norms: all layers as one vector
ROOT = "(model)"  # there: of a model that is one layer, or has parameters beside its layers
UPDATE_NORMS = Measurement(
    file="update_norms.csv",
    columns=(
        *("dataset", "model", "method", "k", "epsilon", "quantile", "run_id", "step", "threshold"),
        *("learning_rate", "layer", "mean", "q10", "q30", "q50", "q70", "q90"),
    ),
    texts={"dataset", "model", "method", "run_id", "layer"},
    nullable={"quantile"},
    content="update norms",
    command="`oso diagnose updates`",
)

WRITER_SERIES = Measurement(
    file="writer_series.csv",
    columns=(
        *("dataset", "model", "method", "k", "epsilon", "seed", "learning_rate", "run_id"),
        *("code_hash", "series", "accuracy"),
    ),
    texts={"dataset", "model", "method", "run_id", "code_hash", "series"},
    nullable={"epsilon"},  # no_dp has none
    content="writer series",
    command="`oso diagnose series`",
)

PATE_PUBLISHED = Measurement(
    file="pate_published.csv",
    columns=("quantity", "source", "printed", "ours", "tolerance", "agrees", "remark"),
    texts={"quantity", "source", "agrees", "remark"},
    nullable={"remark"},
    content="published costs",
    command="`oso pate published`",
)


def _find_nonpositive(table: pd.DataFrame) -> str | None:
    numbers = ["turns", "ratio", "low", "high"]
    return None if (table[numbers] > 0).all(axis=None) else f"{', '.join(numbers)} must be > 0"


STEP_TIMES = Measurement(
    file="step_times.csv",
    columns=(
        *("dataset", "model", "device", "precision", "method", "rival"),
        *("turns", "ratio", "low", "high"),  # of the seconds per step, with its 95 % interval
    ),
    texts={"dataset", "model", "device", "precision", "method", "rival"},
    nullable={},
    content="step times",
    command="`make bench-step-time`",
    find_error=_find_nonpositive,
)

MEASUREMENTS = {  # by the field of `ResultSet` that has the table
    "cosine": COSINES,
    "step_times": STEP_TIMES,
    "signs": ADAPTATION_SIGNS,
    "update_norms": UPDATE_NORMS,
    "pate_published": PATE_PUBLISHED,
    "writer_series": WRITER_SERIES,
}


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
