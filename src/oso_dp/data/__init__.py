"""From raw data to arrays: `prepare` writes one verified file per data set.

Importing this package is cheap; numpy and the fonts are imported when a data set is made.
To add a data set: one module of its name with a `Builder` called `build`, and one entry in
`catalogue.py`. A user's own one needs neither: `oso_dp.data.plugins`.
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oso_dp.data.catalogue import DATASETS, OOV_WORDS, DatasetInfo, dataset_info
from oso_dp.data.plugins import GROUP, USER_MODEL, list_plugins, load_plugin, make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.output_paths import check_output

if TYPE_CHECKING:
    from oso_dp.data.arrays import Arrays

MODULES = {"glyphs": "synthetic_digits"}  # of data sets whose module has another name

__all__ = ["DATASETS", "DatasetInfo", "dataset_info", "is_user_dataset", "prepare_dataset"]


class Builder(Protocol):
    """What a data set's module offers as `build`."""

    def __call__(
        self, data_dir: Path | None, cache: Path, **preparation: Any
    ) -> "tuple[Arrays, dict]":
        """Return the arrays and where they come from; `cache` may keep verified downloads."""


def prepare_dataset(
    dataset: str,
    output: Path,
    data_dir: Path | None = None,
    words: int | None = None,
    oov_words: str | None = None,
    data_version: str | None = None,
    vocabulary: str | None = None,
) -> dict:
    """Make one data set's arrays and write them to `output` (see `oso_dp.data.arrays`).

    `data_dir` is a local folder with the raw files, or a parent of one called like the data
    set; if given it is the only source. Without it, files are downloaded to
    `downloads/<dataset>` beside `output`. A data set that is made on the spot needs neither.
    Of texts, the first `words` words are embedded; words without a vector are `oov_words`
    (`oso_dp.data.ag_news`); `vocabulary` says which words have one (`oso_dp.data.glove`). Of a
    data set that an installed package offers, `data_version` is the one that is wanted; without
    it, any will do; the file is for its owner alone unless the data set is public. Returns the
    provenance that the file holds.

    Raises OsoError for an unknown data set or way of preparing it, a missing or wrong raw file,
    data that are not as declared, an output that cannot be written or is some other file; `output`
    is then as it was.
    """
    is_user_data = is_user_dataset(dataset, data_version)
    if not is_user_data and dataset not in DATASETS:
        offered = ", ".join(sorted({*list_plugins()})) or "nothing"
        raise OsoError(
            f"data set {dataset!r}: not known; allowed are {', '.join(DATASETS)}, and what "
            f"installed packages offer in {GROUP}: {offered}"
        )
    info = make_dataset_info(dataset, USER_MODEL) if is_user_data else dataset_info(dataset)
    preparation = _preparation(info, words, oov_words, vocabulary, data_version)
    output = Path(output)

    from oso_dp.data.arrays import is_arrays_file, save_arrays
    from oso_dp.data.validation import check_arrays

    # Fail on a bad output before minutes of downloading, not after.
    is_ours = partial(is_arrays_file, of=dataset)
    check_output(output, f"a data file of oso for {dataset}", is_ours, option="")

    if is_user_data:
        arrays = load_plugin(dataset)
        provenance: dict[str, Any] = {}
    else:
        build: Builder = import_module(f"{__name__}.{MODULES.get(dataset, dataset)}").build
        cache = output.parent / "downloads" / dataset
        folder = None if data_dir is None else Path(data_dir)
        arrays, provenance = build(folder, cache, **preparation)
    provenance = {"dataset": dataset, "preparation": preparation, **provenance}
    check_arrays(arrays, info, preparation)
    save_arrays(output, arrays, provenance, only_owner=not info.public)
    return provenance


def is_user_dataset(dataset: str, data_version: str | None = None) -> bool:
    """Whether a data set is a user's own: a version is asked for, or a package offers it."""
    return data_version is not None or dataset in {*list_plugins()} - {*DATASETS}


def _preparation(
    info: DatasetInfo,
    words: int | None,
    oov_words: str | None,
    vocabulary: str | None,
    data_version: str | None,
) -> dict[str, Any]:
    """The choices that a data set of texts leaves, a user's own data set's version, else none.

    A vocabulary counts only where it is not the default: files of before there was a choice hold
    that.
    """
    if data_version not in (None, info.version):
        raise OsoError(
            f"data set {info.name!r}: version {data_version!r} is wanted, installed is "
            f"{info.version!r}; write the plan anew"
        )
    if not info.words:
        if (words, oov_words, vocabulary) != (None, None, None):
            texts = ", ".join(name for name, other in DATASETS.items() if other.words)
            raise OsoError(f"{info.name} has no words to choose; {texts} have")
        return {} if info.version is None else {"data_version": info.version}
    chosen = {
        "words": info.words[0] if words is None else words,
        "oov_words": OOV_WORDS[0] if oov_words is None else oov_words,
    }
    if vocabulary not in (None, info.vocabularies[0]):
        chosen["vocabulary"] = vocabulary
    choices_of = {"words": info.words, "oov_words": OOV_WORDS}
    choices_of |= {"vocabulary": info.vocabularies} if "vocabulary" in chosen else {}
    for name, allowed in choices_of.items():
        if chosen[name] not in allowed:
            choices = " or ".join(map(str, allowed))
            raise OsoError(f"{name} {chosen[name]!r}: allowed for {info.name} is {choices}")
    return chosen
