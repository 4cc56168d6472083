"""`oso data`: one data set, fetched, verified and normalised."""

import os
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
    unknown_words: Annotated[
        str | None, typer.Option(help="Words without a vector: zeros or skipped.")
    ] = None,
) -> None:
    """Fetch, verify and normalise one data set."""
    from oso_dp.data import prepare

    if data_dir is None and os.environ.get("OSO_DATA_DIR"):
        data_dir = Path(os.environ["OSO_DATA_DIR"])
    made = prepare(dataset, output, data_dir, words, unknown_words)
    for part, share in made.get("known_words", {}).items():
        print(f"{dataset}: {share:.2%} of the {part} texts' words have a vector")
