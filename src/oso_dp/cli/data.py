"""`oso data`: download, verify and normalise one data set."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def data(
    dataset: str,
    output: Annotated[Path, typer.Option(help="Data file (.npz) to write.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="OSO_DATA_DIR", help="Folder with the raw files [else download]."),
    ] = None,
    words: Annotated[
        int | None, typer.Option(help="Text: number of words of each example.")
    ] = None,
    oov_words: Annotated[
        str | None, typer.Option(help="Text: out-of-vocabulary words, zeros or skipped.")
    ] = None,
    vocabulary: Annotated[
        str | None, typer.Option(help="Text: vocabulary of word vectors, complete or subset.")
    ] = None,
    data_version: Annotated[
        str | None, typer.Option(help="User-defined data set: fail unless it has this version.")
    ] = None,
) -> None:
    """Download, verify and normalise one data set, built-in or from an installed plug-in."""
    from oso_dp.data import is_user_dataset, prepare_dataset

    with _log_to_screen():
        if is_user_dataset(dataset, data_version):
            # Check the model now, not when training begins.
            from oso_dp.training.study_problem import check_user_model

            check_user_model(dataset)
        provenance = prepare_dataset(
            dataset, output, data_dir, words, oov_words, data_version, vocabulary
        )
    for split, fraction in provenance.get("known_words", {}).items():
        print(f"{dataset}: {fraction:.2%} of the words of {split} texts have a vector")


@contextmanager
def _log_to_screen() -> Iterator[None]:
    """In the block, print the log of `oso_dp.data`, such as which mirror is used."""
    log, screen = logging.getLogger("oso_dp.data"), logging.StreamHandler()
    log.addHandler(screen)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(screen)
        log.setLevel(level)
