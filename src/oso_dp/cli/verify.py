"""`oso verify`: stored runs trained again, and held against their rows."""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.store_option import ResultsArgument, ResultsOption, results_folder


def verify(
    folder: ResultsArgument = None,
    results_option: ResultsOption = None,
    data: Annotated[Path, typer.Option(help="Folder of prepared data.")] = Path("build/data"),
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Raw files [or OSO_DATA_DIR], to prepare from what is not there."),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Rows of this data set only; may be repeated.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="As many rows as fit into that.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
) -> None:
    """Train a random sample of the stored runs again; fail if one comes out otherwise.

    Equal to the bit under equal conditions, else within a tolerance. Rows of older streams had
    other noise: they are counted apart.
    """
    import time

    from oso_dp.data import prepare_dataset
    from oso_dp.data.arrays import Arrays
    from oso_dp.data.validation import load_prepared
    from oso_dp.errors import OsoError
    from oso_dp.rerun.compare import WRONG, format_comparison
    from oso_dp.rerun.rerun import order_by_random_sample, select_datasets, select_repeatable
    from oso_dp.rerun.rerun import verify as train_again
    from oso_dp.results.read import read_results
    from oso_dp.study.cohort import Cohort

    store = results_folder(folder, results_option)
    results = read_results(store)
    known = select_repeatable(results.runs)
    if not known:
        raise OsoError(
            f"{store}: no run of it can be trained again: they are on data of your own, or their "
            "noise was never seeded"
        )
    named = os.environ.get("OSO_DATA_DIR")
    raw = data_dir or (Path(named) if named else None)
    every = select_datasets(known, dataset or [])
    refused: OsoError | None = None
    for name, cohort in {one.cohort.data_file: one.cohort for one in every}.items():
        if raw is not None and not (data / name).exists():
            try:
                prepare_dataset(cohort.dataset, data / name, raw, **cohort.preparation)
            except OsoError as error:
                if dataset:  # it was asked for by name
                    raise
                refused = error
                print(f"{cohort.dataset} is left out: {error}", flush=True)
    stored = [one for one in every if (data / one.cohort.data_file).exists()]
    if not stored:
        raise refused or OsoError(
            f"--data {data}: no prepared data of these runs; `--data-dir` says where raw files are"
        )
    held: dict[str, Arrays] = {}

    def arrays_of(cohort: Cohort) -> Arrays:
        if cohort.data_file not in held:
            held.clear()  # one data set at a time is enough for memory
            path = data / cohort.data_file
            held[cohort.data_file] = load_prepared(path, cohort.dataset, cohort.preparation)
        return held[cohort.data_file]

    counts: Counter[str] = Counter()
    order = order_by_random_sample(stored, seed)
    for one, verdict in train_again(results, order, arrays_of, 60 * minutes, time.monotonic):
        counts[verdict.text] += 1
        print(f"{one}: {format_comparison(verdict)}", flush=True)
    print(f"{counts.total()} of {len(stored)} rows, drawn with seed {seed}:")
    for text, count in counts.most_common():
        print(f"  {count} {text}")
    wrong = sum(counts[text] for text in WRONG)
    if wrong:
        raise OsoError(f"{wrong} of {counts.total()} rows came out otherwise than they are stored")
