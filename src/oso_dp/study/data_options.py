"""How a model wants its data prepared, and what the prepared file is called.

Images are prepared in one way. Of texts, the model decides how many words it reads, and the
configuration what becomes of a word without a vector, and which words have one (see
`oso_dp.data.prepare_dataset`). A user's own data are as their package gives them, in the version
that it declares.
"""

from typing import Any

from oso_dp.data.catalogue import DATASETS, OOV_WORDS
from oso_dp.models import MODELS


def make_data_options(
    model: str,
    oov_words: str,
    data_version: str | None = None,
    vocabulary: str | None = None,
) -> dict[str, Any]:
    """Options of `oso data`; none for images.

    vocabulary: None for the data set's default, which is left out.
    """
    if data_version is not None:
        return {"data_version": data_version}
    words = MODELS[model].words if model in MODELS else None
    if words is None:
        return {}
    chosen = {} if vocabulary is None else {"vocabulary": vocabulary}
    return {"words": words, "oov_words": oov_words, **chosen}


def file_name(dataset: str, prepared: dict[str, Any]) -> str:
    """The prepared file's name without .npz: the data set, and options that are not default."""
    words = DATASETS[dataset].words if dataset in DATASETS else ()
    defaults = (*words[:1], OOV_WORDS[0])
    return "-".join(
        [dataset, *(str(value) for value in prepared.values() if value not in defaults)]
    )
