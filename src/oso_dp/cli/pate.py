"""`oso pate`: teachers' votes, private labels, students, and the epsilon of what was released."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.shared_options import DataFile, Threads
from oso_dp.errors import OsoError

ConfigFile = Annotated[
    Path, typer.Argument(help="Configuration, such as config/pate.yaml; - for standard input.")
]
Dataset = Annotated[str, typer.Option(help="Data set of the configuration.")]
TeacherCount = Annotated[int, typer.Option(help="Number of teachers.")]
Seed = Annotated[int, typer.Option(help="One of the configuration's seeds.")]


def votes(
    config: ConfigFile,
    dataset: Dataset,
    teachers: TeacherCount,
    seed: Seed,
    data: DataFile,
    output: Annotated[Path, typer.Option(help="File of votes (.npz) to write.")],
    shard: Annotated[
        int, typer.Option(min=0, help="Index of the shard, from 0 to teachers.shards - 1.")
    ] = 0,
    threads: Threads = 1,
) -> None:
    """Train a shard of the teachers, each on its part of the training data; write their votes."""
    import torch

    from oso_dp.output_paths import check_output
    from oso_dp.pate.config import load_pate_config
    from oso_dp.pate.record_files import is_record
    from oso_dp.pate.teachers import KIND, load_dataset, vote, write_votes

    check_output(output, "a file of votes", is_record(KIND), [config, data])
    study = load_pate_config(config)
    arrays = load_dataset(study, dataset, data)
    torch.set_num_threads(threads)
    write_votes(output, vote(study, dataset, teachers, seed, arrays, shard))


def label(
    config: ConfigFile,
    dataset: Dataset,
    teachers: TeacherCount,
    seed: Seed,
    data: DataFile,
    votes: Annotated[list[Path], typer.Option(help="File of votes; repeated for each shard.")],
    aggregator: Annotated[str, typer.Option(help="Aggregator of the configuration.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of the configuration.")],
    output: Annotated[Path, typer.Option(help="File of labels (.npz) to write.")],
) -> None:
    """Answer the aggregator's queries on the pool by a private vote; compute epsilon."""
    from oso_dp.output_paths import check_output
    from oso_dp.pate.config import load_pate_config
    from oso_dp.pate.labels import KIND, label_pool, write_labels
    from oso_dp.pate.record_files import is_record
    from oso_dp.pate.teachers import load_dataset, read_votes

    check_output(output, "a file of labels", is_record(KIND), [config, data, *votes])
    study = load_pate_config(config)
    arrays = load_dataset(study, dataset, data)
    total, facts = read_votes(votes, study, dataset, teachers, seed, arrays)
    labels, facts = label_pool(study, aggregator, epsilon, total, facts, arrays)
    write_labels(output, labels, facts)
    print(
        f"{dataset}, {aggregator}, epsilon {epsilon:g}: {facts['answered']} of {facts['queries']} "
        "queries answered"
    )


def student(
    config: ConfigFile,
    data: DataFile,
    labels: Annotated[Path, typer.Option(help="File (.npz) that `oso pate label` wrote.")],
    output: Annotated[Path, typer.Option(help="Table (.parquet) of the students to write.")],
    threads: Threads = 1,
) -> None:
    """Train students on private labels, and evaluate them on the test examples."""
    import torch

    from oso_dp.output_paths import check_output
    from oso_dp.pate.config import load_pate_config
    from oso_dp.pate.labels import read_labels
    from oso_dp.pate.students import train_students
    from oso_dp.pate.teachers import load_dataset
    from oso_dp.results.pate_rows import is_table, write_rows

    check_output(output, "a table of PATE's students", is_table, [config, data, labels])
    study = load_pate_config(config)
    found, facts = read_labels(labels)
    arrays = load_dataset(study, facts["dataset"], data)
    torch.set_num_threads(threads)
    rows = train_students(study, found, facts, arrays)
    write_rows(output, rows)
    for row in rows:
        reached = f"{row['student_accuracy']:.2%}" if row["answered"] else "no query was answered"
        print(f"{row['dataset']}, {row['learning']}: {reached}")


def collect_students(
    parts: Annotated[list[Path], typer.Argument(help="Tables of students.")],
    results: Annotated[Path, typer.Option(help="Folder of pate.parquet.")],
) -> None:
    """Add tables of students to the results folder; replace rows with the same key."""
    from oso_dp.results.pate_rows import FILE, collect_rows

    print(f"{results / FILE}: {collect_rows(parts, results)} rows")


def account_students(
    results: Annotated[Path, typer.Argument(help="Folder of pate.parquet.")] = Path("results/pate"),
) -> None:
    """Recompute epsilon from the ledgers of the stored students; fail if one exceeds its budget."""
    from oso_dp.analysis.pate import account_rows, check_pate_budgets
    from oso_dp.cli.printing import print_table
    from oso_dp.results.pate_rows import FILE, read_rows

    if not (results / FILE).is_file():
        raise OsoError(f"{results / FILE}: not found; must be the table of `oso pate collect`")
    table = account_rows(read_rows(results / FILE))
    print_table(table.columns, table.itertuples(index=False))
    check_pate_budgets(table)


def published(
    votes: Annotated[
        Path, typer.Option(help="Folder with the authors' votes, mnist_250_teachers.npy.")
    ],
    data: Annotated[Path, typer.Option(help="MNIST's data file (.npz), for its test labels.")],
    output: Annotated[Path, typer.Option(help="Table (.csv) to write.")],
) -> None:
    """Recompute what the papers of PATE print, from their authors' votes."""
    from oso_dp.analysis.pate import recompute_published
    from oso_dp.analysis.side_measurements import PATE_PUBLISHED
    from oso_dp.cli.printing import print_table
    from oso_dp.data.validation import load_prepared
    from oso_dp.files import atomic_write
    from oso_dp.output_paths import check_output, is_table

    check_output(output, "a table of published costs", is_table(PATE_PUBLISHED.columns), [data])
    table = recompute_published(votes, load_prepared(data, "mnist", {}).test_targets)
    with atomic_write(output) as file:
        file.write(table.to_csv(index=False).encode())
    print_table(table.columns, table.itertuples(index=False))
