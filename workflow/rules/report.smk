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
    shell:
        "oso report --results {params.store} --output {params.folder} --plan {input.plan}"
        " > {log} 2> >(tee -a {log} >&2)"
        " && mkdir -p {params.published} && cp -R {params.folder}/. {params.published}/"
