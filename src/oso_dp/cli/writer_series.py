"""`oso diagnose series`: accuracy on MNIST's test digits of students and of employees."""

from oso_dp.cli.shared_options import DataFile, SharedOutput, Threads
from oso_dp.cli.store_option import ResultsArgument, results_folder


def series(
    data: DataFile,
    output: SharedOutput,
    results: ResultsArgument = None,
    threads: Threads = 1,
) -> None:
    """Record the accuracy on the digits of students and of employees, who wrote MNIST's test set.

    Retrains the stored runs of each best grid point; those in the output are skipped.
    """
    import torch

    from oso_dp.analysis.load import read_result_set
    from oso_dp.analysis.side_measurements import WRITER_SERIES_COLUMNS, read_writer_series
    from oso_dp.data.arrays import load_arrays
    from oso_dp.data.mnist_writers import TEST_SERIES_DATASETS
    from oso_dp.data.validation import load_prepared
    from oso_dp.diagnostics.record import write_series
    from oso_dp.diagnostics.writer_series import measure_series
    from oso_dp.errors import OsoError
    from oso_dp.output_paths import check_output, is_table
    from oso_dp.rerun.rerun import select_repeatable
    from oso_dp.results.write import writing
    from oso_dp.training.job import make_task

    check_output(output, "a table of writer series", is_table(WRITER_SERIES_COLUMNS), [data])
    study = read_result_set(results_folder(results, None))
    dataset = load_arrays(data)[1].get("dataset")
    if dataset not in TEST_SERIES_DATASETS:
        allowed = ", ".join(TEST_SERIES_DATASETS)
        raise OsoError(f"--data: {data}; data set {dataset!r}; must be one of {allowed}")
    arrays = load_prepared(data, dataset, {})
    done = read_writer_series(output)["run_id"]
    best = study.runs[study.runs["run_id"].isin(study.best_runs["run_id"])]
    best = best[(best["dataset"] == dataset) & ~best["run_id"].isin(done)]
    torch.set_num_threads(threads)
    for stored in select_repeatable(best):
        rows = measure_series(make_task(stored.cohort), stored.run, arrays)
        with writing(output):
            write_series(output, stored.cohort, stored.run, rows)
        found = ", ".join(f"{row.series} {row.accuracy:.4f}" for row in rows)
        print(f"{stored}: {found}", flush=True)
