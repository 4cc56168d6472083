rule account:
    """Epsilon of every grid, recomputed from its ledgers; fails if one exceeds its budget."""
    input:
        collected=BUILD / "collected.txt",
        plan=BUILD / "plan.json",
    output:
        BUILD / "accounting.csv",
    log:
        LOGS / "account.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        store=STORE,
        plans=plans,
    shell:
        "oso account {params.store:q} {params.plans:q} --output {output:q}"
        " > {log:q} 2> >(tee -a {log:q} >&2)"


rule report_page:
    """Tables, figures and the page, from the results store."""
    input:
        accounting=BUILD / "accounting.csv",
        plan=BUILD / "plan.json",
    output:
        # Below build/, because Snakemake deletes the outputs of a rule that fails.
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
    threads: 4
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        store=STORE,
        folder=lambda wildcards, output: Path(output.page).parent,
        plans=plans,
    shell:
        "oso report --results {params.store:q} --output {params.folder:q} {params.plans:q}"
        " > {log:q} 2> >(tee -a {log:q} >&2)"


rule publish:
    """Copy the report to its final folder, which is no output, since Snakemake deletes outputs."""
    input:
        BUILD / "report/index.html",
    output:
        BUILD / "published.txt",
    log:
        LOGS / "publish.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        source=lambda wildcards, input: Path(input[0]).parent,
        target=PUBLISHED,
    shell:
        "oso publish {params.source:q} --output {params.target:q} > {output:q} 2> >(tee -i {log:q} >&2)"
