"""From raw data to arrays: `prepare` writes one verified file per data set.

Importing this package is cheap; numpy and the fonts are imported when a data set is made.
To add a data set: one module with a `build` function like those below, one line in `_MODULES`
and one entry in `catalogue.py`.
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oso_dp.data.catalogue import DATASETS, UNKNOWN_WORDS, DatasetInfo, dataset_info
from oso_dp.errors import OsoError
from oso_dp.outputs import check_output

if TYPE_CHECKING:
    from oso_dp.data.arrays import Arrays

__all__ = ["DATASETS", "DatasetInfo", "dataset_info", "prepare"]


class Builder(Protocol):
    """What a data set's module offers as `build`."""

    def __call__(
        self, data_dir: Path | None, cache: Path, **preparation: Any
    ) -> "tuple[Arrays, dict]":
        """Return the arrays and where they come from; `cache` may keep verified downloads."""


_MODULES = {
    "mnist": "oso_dp.data.mnist",
    "fashion_mnist": "oso_dp.data.fashion_mnist",
    "ag_news": "oso_dp.data.ag_news",
    "ag_news_partial": "oso_dp.data.ag_news_partial",
    "glyphs": "oso_dp.data.glyphs",
}


def prepare(
    dataset: str,
    output: Path,
    data_dir: Path | None = None,
    words: int | None = None,
    unknown_words: str | None = None,
) -> dict:
    """Make one data set's arrays and write them to `output` (see `oso_dp.data.arrays`).

    `data_dir` is a local folder with the raw files, or a parent of one called like the data
    set; if given it is the only source. Without it, files are downloaded to
    `downloads/<dataset>` beside `output`. A data set that is made on the spot needs neither.
    Of texts, the first `words` words are embedded; words without a vector are `unknown_words`
    (`oso_dp.data.ag_news`). Returns the provenance that the file holds.

    Raises OsoError for an unknown data set or way of preparing it, a missing or wrong raw file, an
    output that cannot be written or is some other file; `output` is then as it was.
    """
    info = dataset_info(dataset)
    preparation = _preparation(info, words, unknown_words)
    output = Path(output)

    from oso_dp.data.arrays import is_arrays_file, save_arrays
    from oso_dp.data.prepared import check_arrays

    # Fail on a bad output before minutes of downloading, not after.
    is_ours = partial(is_arrays_file, of=dataset)
    check_output(output, f"a data file of oso for {dataset}", is_ours, option="")

    build: Builder = import_module(_MODULES[dataset]).build
    cache = output.parent / "downloads" / dataset
    folder = None if data_dir is None else Path(data_dir)
    arrays, provenance = build(folder, cache, **preparation)
    provenance = {"dataset": dataset, "preparation": preparation, **provenance}
    check_arrays(arrays, info, preparation)
    save_arrays(output, arrays, provenance)
    return provenance


def _preparation(info: DatasetInfo, words: int | None, unknown_words: str | None) -> dict[str, Any]:
    """The choices that a data set of texts leaves; none for others."""
    if not info.words:
        if words is not None or unknown_words is not None:
            texts = ", ".join(name for name, other in DATASETS.items() if other.words)
            raise OsoError(f"{info.name} has no words to choose; {texts} have")
        return {}
    chosen = {
        "words": info.words[0] if words is None else words,
        "unknown_words": UNKNOWN_WORDS[0] if unknown_words is None else unknown_words,
    }
    for name, allowed in {"words": info.words, "unknown_words": UNKNOWN_WORDS}.items():
        if chosen[name] not in allowed:
            choices = " or ".join(map(str, allowed))
            raise OsoError(f"{name} {chosen[name]!r}: allowed for {info.name} is {choices}")
    return chosen
