"""`oso plan`: the workload of a study, and its plan with calibrated noise."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError

ConfigFile = Annotated[Path, typer.Option("--config", help="Configuration file; - reads stdin.")]


def plan(
    config: ConfigFile,
    output: Annotated[Path | None, typer.Option(help="Write the plan to this JSON file.")] = None,
    search_noise_csv: Annotated[
        Path | None,
        typer.Option(
            help="Write the noise multiplier of each search by every accounting rule to this CSV "
            "file; takes a minute. Reports read it from a results folder as search_noise.csv."
        ),
    ] = None,
) -> None:
    """Print a study's workload; with --output, calibrate its cohorts' noise and write the plan.

    For private data, also print the privacy guarantee of the whole study.
    """
    from oso_dp.analysis.study_statement import make_planned_statements
    from oso_dp.output_paths import check_folder, check_output, is_table
    from oso_dp.results.conflicts import (
        check_budget_unspent,
        check_same_search,
        places_elsewhere,
        study_places,
    )
    from oso_dp.results.read import run_ids
    from oso_dp.results.write import writing
    from oso_dp.study.config import load_config
    from oso_dp.study.expand import make_cohorts
    from oso_dp.study.plan import is_plan, make_plan, write_plan
    from oso_dp.study.workload import estimate_workload

    study = load_config(config)
    try:
        cohorts = make_cohorts(study)
    except OsoError as error:  # of grids, which are not expanded when a configuration is checked
        raise OsoError(f"{config}: {error}") from None
    if output is None and search_noise_csv is not None:
        raise OsoError("--search-noise-csv: needs --output; set both")
    if output is not None:
        check_output(output, "a plan", is_plan, [config])
    if output is not None and search_noise_csv is not None:
        from oso_dp.analysis.search_costs import KEY

        kind = "a table of search costs"
        check_output(search_noise_csv, kind, is_table(KEY), [config, output], "--search-noise-csv")
    if output is not None:
        check_folder(Path(study.results), "results")
        check_folder(Path(study.report), "report")
        check_same_search(Path(study.results), cohorts)
        build = Path("build") / study.name
        places = study_places(Path(study.results), build)
        check_budget_unspent(places, cohorts, places_elsewhere(build.parent, build))
        planned = make_plan(study, cohorts)
        with writing(output):
            write_plan(planned, output)
        for statement in make_planned_statements(planned.cohorts):
            print(f"{statement}\n")
    if output is not None and search_noise_csv is not None:
        from oso_dp.analysis.search_costs import write_costs

        write_costs(output, search_noise_csv)
    print(estimate_workload(study, cohorts, run_ids(Path(study.results))))
