"""`oso plan`: what a study has ahead, and its plan with the noise."""

from pathlib import Path
from typing import Annotated

import typer

from oso_dp.errors import OsoError

ConfigFile = Annotated[Path, typer.Option("--config", help="Configuration file; - reads stdin.")]


def plan(
    config: ConfigFile,
    output: Annotated[Path | None, typer.Option(help="Write the plan here (JSON).")] = None,
    search_noise_csv: Annotated[
        Path | None,
        typer.Option(
            help="Write here what each search costs by every rule (CSV); takes a minute. A report "
            "of a folder that holds it as search_noise.csv is faster by that minute."
        ),
    ] = None,
) -> None:
    """Say what a study has ahead; with --output, find its cohorts' noise and write the plan.

    Of data that are not public it says in words what the whole study of them promises.
    """
    from oso_dp.analysis.study_statement import make_planned_statements
    from oso_dp.output_paths import check_folder, check_output, is_table
    from oso_dp.results.collect import finished_runs
    from oso_dp.results.conflicts import refuse_other_search, refuse_spent, study_places
    from oso_dp.results.write import writing
    from oso_dp.study.config import load_config
    from oso_dp.study.expand import make_cohorts
    from oso_dp.study.plan import is_plan, make_plan, write_plan
    from oso_dp.study.workload import estimate_workload

    study = load_config(config)
    try:
        every = make_cohorts(study)
    except OsoError as error:  # of a grid, which the configuration's checks do not lay out
        raise OsoError(f"{config}: {error}") from None
    if output is None and search_noise_csv is not None:
        raise OsoError("--search-noise-csv: needs --output, the plan whose searches are meant")
    if output is not None:
        check_output(output, "a plan", is_plan, [config])
    if output is not None and search_noise_csv is not None:
        from oso_dp.analysis.search_costs import KEY

        kind = "a table of search costs"
        check_output(search_noise_csv, kind, is_table(KEY), [config, output], "--search-noise-csv")
    if output is not None:
        check_folder(Path(study.results), "results")
        check_folder(Path(study.report), "report")
        refuse_other_search(Path(study.results), every)
        refuse_spent(study_places(Path(study.results), Path("build") / study.name), every)
        made = make_plan(study)
        with writing(output):
            write_plan(made, output)
        for statement in make_planned_statements(made.cohorts):
            print(f"{statement}\n")
    if output is not None and search_noise_csv is not None:
        from oso_dp.analysis.search_costs import write_costs

        write_costs(output, search_noise_csv)
    print(estimate_workload(study, every, finished_runs(Path(study.results))))
