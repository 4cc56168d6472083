rule report_page:
    """Tables, figures and the page, from the results store; then a copy where people look."""
    input:
        collected=BUILD / "collected.txt",
        plan=BUILD / "plan.json",
    output:
        # Outputs lie under build/ because Snakemake deletes the outputs of a rule that fails.
        page=report(
            BUILD / "report/index.html",
            caption="../report/page.rst",
            category="Report",
        ),
        figures=report(
            directory(BUILD / "report/figures"),
            patterns=["{name}.png"],
            caption="../report/figure.rst",
            category="Figures",
        ),
        tables=report(
            directory(BUILD / "report/tables"),
            patterns=["{name}.csv"],
            caption="../report/table.rst",
            category="Tables",
        ),
    log:
        LOGS / "report.log",
    conda:
        "../../environment.yml"
    params:
        store=STORE,
        folder=lambda wildcards, output: Path(output.page).parent,
        published=STUDY.report,
        # The store's own plan, if it has one, is of the whole study, not of a piece of it.
        plan=lambda wildcards, input: (
            STORE / "plan.json" if (STORE / "plan.json").exists() else input.plan
        ),
    shell:
        "oso report --results {params.store} --output {params.folder} --plan {params.plan}"
        " > {log} 2> >(tee -a {log} >&2)"
        " && mkdir -p {params.published} && cp -R {params.folder}/. {params.published}/"
