"""`oso data`: one data set, fetched, verified and normalised."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def data(
    dataset: str,
    output: Annotated[Path, typer.Option(help="The .npz file to write.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the raw files [or OSO_DATA_DIR].")
    ] = None,
    words: Annotated[int | None, typer.Option(help="Of a text, how many words.")] = None,
    oov_words: Annotated[
        str | None, typer.Option(help="Words without a vector: zeros or skipped.")
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option(help="Words that have a vector: complete or subset.")
    ] = None,
    data_version: Annotated[
        str | None, typer.Option(help="Of a data set of your own: fail if it is another version.")
    ] = None,
) -> None:
    """Fetch, verify and normalise one data set, or one that an installed package offers."""
    from oso_dp.data import is_user_dataset, prepare_dataset

    if data_dir is None and os.environ.get("OSO_DATA_DIR"):
        data_dir = Path(os.environ["OSO_DATA_DIR"])
    with _describe_datasets():
        if is_user_dataset(
            dataset, data_version
        ):  # a model that cannot be trained is better known now
            from oso_dp.training.user_task import check_user_model

            check_user_model(dataset)
        made = prepare_dataset(
            dataset, output, data_dir, words, oov_words, data_version, vocabulary
        )
    for part, fraction in made.get("known_words", {}).items():
        print(f"{dataset}: {fraction:.2%} of the {part} texts' words have a vector")


@contextmanager
def _describe_datasets() -> Iterator[None]:
    """Inside of the block, what the data room logs, as which mirror it asks, is on the screen."""
    log, screen = logging.getLogger("oso_dp.data"), logging.StreamHandler()
    log.addHandler(screen)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(screen)
        log.setLevel(level)
