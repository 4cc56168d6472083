"""`oso verify`: retrain stored runs and compare them with their rows."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import ResultsArgument, ResultsOption, results_folder


def verify(
    folder: ResultsArgument = None,
    results_option: ResultsOption = None,
    data: Annotated[Path, typer.Option(help="Folder of data files.")] = Path("build/data"),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="OSO_DATA_DIR", help="Folder with raw files, to prepare missing data files."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only runs on this data set; may be repeated.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Time limit.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
) -> None:
    """Retrain a random sample of the stored runs; fail if a result differs.

    Results must be bit-identical under equal conditions, else within a tolerance. Runs of an older
    RNG version had other noise: they are counted separately.
    """
    import time

    from oso_dp.data import prepare_dataset
    from oso_dp.data.arrays import Arrays
    from oso_dp.data.validation import load_prepared
    from oso_dp.errors import OsoError
    from oso_dp.rerun.rerun import (
        WRONG,
        format_comparison,
        order_by_random_sample,
        select_datasets,
        select_repeatable,
    )
    from oso_dp.rerun.rerun import verify as train_again
    from oso_dp.results.read import read_results
    from oso_dp.study.cohort import Cohort

    store = results_folder(folder, results_option)
    results = read_results(store)
    known = select_repeatable(results.runs)
    if not known:
        raise OsoError(
            f"{store}: no run can be retrained: all are on user-defined data sets, or with "
            "randomness: system"
        )
    selected = select_datasets(known, dataset or [])
    refused: OsoError | None = None
    for name, cohort in {one.cohort.data_file: one.cohort for one in selected}.items():
        if data_dir is not None and not (data / name).exists():
            try:
                prepare_dataset(cohort.dataset, data / name, data_dir, **cohort.preparation)
            except OsoError as error:
                if dataset:  # requested by name
                    raise
                refused = error
                print(f"{cohort.dataset} is skipped: {error}", flush=True)
    stored = [one for one in selected if (data / one.cohort.data_file).exists()]
    if not stored:
        raise refused or OsoError(
            f"--data: {data}; no data files of these runs; prepare them with `oso data`, or set "
            "--data-dir"
        )
    loaded: dict[str, Arrays] = {}

    def load_arrays(cohort: Cohort) -> Arrays:
        if cohort.data_file not in loaded:
            loaded.clear()  # keep one data set in memory
            path = data / cohort.data_file
            loaded[cohort.data_file] = load_prepared(path, cohort.dataset, cohort.preparation)
        return loaded[cohort.data_file]

    counts: Counter[str] = Counter()
    order = order_by_random_sample(stored, seed)
    for run, comparison in train_again(results, order, load_arrays, 60 * minutes, time.monotonic):
        counts[comparison.text] += 1
        print(f"{run}: {format_comparison(comparison)}", flush=True)
    print(f"{counts.total()} of {len(stored)} rows, sampled with seed {seed}:")
    for text, count in counts.most_common():
        print(f"  {count} {text}")
    wrong = sum(counts[text] for text in WRONG)
    if wrong:
        raise OsoError(f"{wrong} of {counts.total()} rows: results differ from the stored ones")
