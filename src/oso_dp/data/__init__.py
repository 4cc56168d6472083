"""Data sets: `prepare_dataset` downloads, verifies and converts one into a file of arrays.

Importing this package is cheap; numpy is imported when a data set is prepared. To add a data set,
write a `Builder` in a module of this package, and add an entry that names it to `catalogue.py`.
User-defined data sets are plug-ins instead (`oso_dp.data.plugins`).
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oso_dp.data.catalogue import DATASETS, OOV_WORDS, DatasetSpec, dataset_info
from oso_dp.data.plugins import GROUP, USER_MODEL, list_plugins, load_plugin, make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.output_paths import check_output

if TYPE_CHECKING:
    from oso_dp.data.arrays import Arrays

__all__ = ["DATASETS", "DatasetSpec", "dataset_info", "is_user_dataset", "prepare_dataset"]


class Builder(Protocol):
    """The type of the function that `DatasetSpec.builder` names."""

    def __call__(
        self, data_dir: Path | None, cache: Path, **preparation: Any
    ) -> "tuple[Arrays, dict]":
        """Return the arrays and their provenance; `cache` is a folder for verified downloads."""


def prepare_dataset(
    dataset: str,
    output: Path,
    data_dir: Path | None = None,
    words: int | None = None,
    oov_words: str | None = None,
    data_version: str | None = None,
    vocabulary: str | None = None,
) -> dict:
    """Prepare a data set and write its arrays to `output` (see `oso_dp.data.arrays`).

    Args:
        dataset: Name of a data set of the catalogue, or of a plug-in.
        output: The data file. For a plug-in that is not public, only its owner may read it.
        data_dir: Local folder with the raw files, or with a subfolder of the data set's name that
            has them; nothing is downloaded then. Default: download to `downloads/<dataset>` beside
            `output`.
        words: Texts only: number of words per text.
        oov_words: Texts only: out-of-vocabulary words are `zeros` or `skipped`.
        data_version: Plug-ins only: the required version. Default: any.
        vocabulary: Texts only: which GloVe vocabulary to use (`oso_dp.data.glove`).

    Returns:
        The provenance stored in the file.

    Raises:
        OsoError: For an unknown data set or option, a missing or wrong raw file, data that differ
            from their declaration, or an output that cannot be written or is another kind of file;
            `output` is then unchanged.
    """
    is_user_data = is_user_dataset(dataset, data_version)
    if not is_user_data and dataset not in DATASETS:
        plugins = ", ".join(sorted({*list_plugins()})) or "none"
        raise OsoError(
            f"data set {dataset!r}: unknown; must be one of {', '.join(DATASETS)}, or an entry "
            f"point {GROUP} of an installed package: {plugins}"
        )
    info = make_dataset_info(dataset, USER_MODEL if is_user_data else "")
    preparation = _preparation(info, words, oov_words, vocabulary, data_version)
    output = Path(output)

    from oso_dp.data.arrays import is_arrays_file, save_arrays
    from oso_dp.data.validation import check_arrays

    # Check the output before minutes of downloading, not after.
    is_ours = partial(is_arrays_file, of=dataset)
    check_output(output, f"a data file of oso for {dataset}", is_ours, option="")

    if is_user_data:
        arrays = load_plugin(dataset)
        provenance: dict[str, Any] = {}
    else:
        module, function = info.builder.split(".")
        build: Builder = getattr(import_module(f"{__name__}.{module}"), function)
        cache = output.parent / "downloads" / dataset
        folder = None if data_dir is None else Path(data_dir)
        options = {"vocabulary": info.vocabularies[0]} if info.words else {}
        arrays, provenance = build(folder, cache, **options | preparation)
    provenance = {"dataset": dataset, "preparation": preparation, **provenance}
    check_arrays(arrays, info, preparation)
    save_arrays(output, arrays, provenance, only_owner=not info.public)
    return provenance


def is_user_dataset(dataset: str, data_version: str | None = None) -> bool:
    """Whether a data set is user-defined: a version is required, or a plug-in has its name."""
    return data_version is not None or dataset in {*list_plugins()} - {*DATASETS}


def _preparation(
    info: DatasetSpec,
    words: int | None,
    oov_words: str | None,
    vocabulary: str | None,
    data_version: str | None,
) -> dict[str, Any]:
    """Options of a text data set, or the version of a user-defined one; empty for others.

    The default vocabulary is left out, for data files that are older than this option.
    """
    if data_version not in (None, info.version):
        raise OsoError(
            f"data set {info.name!r}: version {data_version!r} required, but {info.version!r} is "
            "installed; make a new plan"
        )
    if not info.words:
        if (words, oov_words, vocabulary) != (None, None, None):
            texts = ", ".join(name for name, other in DATASETS.items() if other.words)
            raise OsoError(
                f"data set {info.name!r}: words, oov_words and vocabulary are for text only; leave "
                f"them out, or use {texts}"
            )
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
            choices = ", ".join(map(str, allowed))
            raise OsoError(f"{name}: {chosen[name]!r}; must be one of {choices} for {info.name}")
    return chosen
