"""The commands. Heavy rooms are imported when a command needs them, to keep `oso --help` quick."""

import os
from pathlib import Path
from typing import Annotated

import typer

from oso_dp.cli.account import account
from oso_dp.cli.audit import audit
from oso_dp.cli.budget import budget
from oso_dp.cli.cosine import cosine
from oso_dp.errors import OsoError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Private learning with Online Sensitivity Optimization: the study's commands.",
)

app.command()(budget)
app.command()(account)
app.command()(audit)
app.command()(cosine)

ConfigFile = Annotated[Path, typer.Option("--config", help="Configuration file; - reads stdin.")]


@app.command()
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


@app.command()
def plan(
    config: ConfigFile,
    output: Annotated[Path | None, typer.Option(help="Write the priced plan here (JSON).")] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Write here what each search costs by every rule (CSV); takes a minute. A report "
            "of a folder that holds it as prices.csv is faster by that minute."
        ),
    ] = None,
) -> None:
    """Say what a study has ahead; with --output, price its cohorts and write the plan."""
    from oso_dp.results.collect import finished_runs
    from oso_dp.study.cohort import cohorts
    from oso_dp.study.config import load_config
    from oso_dp.study.plan import make_plan, write_plan
    from oso_dp.study.workload import workload

    study = load_config(config)
    if output is not None:
        write_plan(make_plan(study), output)
    if prices is not None:
        if output is None:
            raise OsoError("--prices: needs --output, the plan whose searches are priced")
        from oso_dp.analysis.search_costs import write_prices

        write_prices(output, prices)
    print(workload(study, cohorts(study), finished_runs(Path(study.results))))


@app.command()
def train(
    plan: Annotated[Path, typer.Option(help="What `oso plan --output` wrote.")],
    cohort: Annotated[str, typer.Option(help="Name of the cohort.")],
    data: Annotated[Path, typer.Option(help="What `oso data` wrote.")],
    output: Annotated[Path, typer.Option(help="Folder for the part's two Parquet files.")],
    shard: Annotated[int, typer.Option(help="Which portion of the cohort, from 0.")] = 0,
    store: Annotated[Path | None, typer.Option(help="Skip the runs that this store has.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
) -> None:
    """Train the runs of one cohort, or of one shard of it. A killed call resumes."""
    from oso_dp.cli.progress import Progress
    from oso_dp.results.collect import finished_runs
    from oso_dp.results.write import write_table
    from oso_dp.study.plan import read_plan
    from oso_dp.study.preparation import check_prepared

    priced = read_plan(plan)
    chosen = priced.cohort(cohort)
    shards = chosen.shards(priced.config.runs_per_job)
    if not 0 <= shard < len(shards):
        raise OsoError(f"--shard {shard}: {cohort} has shards 0 to {len(shards) - 1}")
    stored = finished_runs(store) if store is not None else set()
    runs = [run for run in shards[shard] if run.run_id not in stored]

    import torch

    from oso_dp.data.arrays import load_arrays
    from oso_dp.training.job import run_job

    if priced.config.device == "cuda" and not torch.cuda.is_available():
        raise OsoError("device cuda: no CUDA device is visible here; allowed is cpu")
    torch.set_num_threads(threads)
    arrays, provenance = load_arrays(data)
    check_prepared(str(data), provenance, chosen.dataset, chosen.preparation)
    rows = run_job(
        priced.config,
        chosen,
        runs,
        priced.noise_multipliers[cohort],
        arrays,
        output / "progress",
        Progress(f"{cohort} [{shard}]", len(runs), chosen.steps),
    )
    write_table(output / "evaluations.parquet", "evaluations", rows.evaluations)
    write_table(output / "runs.parquet", "runs", rows.runs)


@app.command()
def collect(
    parts: Annotated[list[Path], typer.Argument(help="Folders that `oso train` wrote.")],
    store: Annotated[Path, typer.Option(help="Results folder to add them to.")],
    plan: Annotated[Path | None, typer.Option(help="Fail unless all its runs are there.")] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Prepared texts, for the share of words known.")
    ] = None,
) -> None:
    """Add parts to the results store, each run once."""
    from oso_dp.results.collect import collect as collect_parts
    from oso_dp.results.facts import keep_facts
    from oso_dp.study.plan import read_plan

    expected = () if plan is None else read_plan(plan).run_ids()
    results = collect_parts(parts, store, expected)
    keep_facts(store, data or [])
    print(f"{store}: {len(results.runs):,} runs, {len(results.evaluations):,} evaluations")


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    output: Annotated[Path, typer.Option(help="Folder for tables, figures, page.")] = Path(
        "reports"
    ),
    plan: Annotated[
        list[Path] | None,
        typer.Option(
            help="A priced plan with grids' sizes and noise; may be repeated "
            "[RESULTS/plan.json if there]."
        ),
    ] = None,
) -> None:
    """Make tables, figures and index.html from a results folder alone."""
    from oso_dp.reporting.page.build import build_report
    from oso_dp.study.plan import plans_of

    print(build_report(results, output, plans_of(results, plan)))


@app.command()
def summary(
    results: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    report: Annotated[Path | None, typer.Option(help="Page to point to.")] = None,
) -> None:
    """Print what came out, as a table."""
    from rich.console import Console

    from oso_dp.reporting.summary import summary_table

    Console().print(summary_table(results))
    if report is not None:
        print(f"Report: {report}")


@app.command()
def schema() -> None:
    """Print the JSON schema of a configuration (workflow/schemas/config.schema.json)."""
    import json

    from oso_dp.study.config import json_schema

    print(json.dumps(json_schema(), indent=2))
