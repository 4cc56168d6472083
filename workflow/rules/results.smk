rule collect:
    """Add all parts to the results store. The store is no output: Snakemake deletes outputs."""
    input:
        runs=[part / "runs.parquet" for part in all_parts()],
        evaluations=[part / "evaluations.parquet" for part in all_parts()],
        plan=BUILD / "plan.json",
    output:
        BUILD / "collected.txt",
    log:
        LOGS / "collect.log",
    conda:
        "../../environment.yml"
    params:
        parts=lambda wildcards, input: [Path(path).parent for path in input.runs],
        store=STORE,
    shell:
        "oso collect {params.parts} --store {params.store} --plan {input.plan} > {output}.tmp 2> >(tee {log} >&2)"
        " && mv {output}.tmp {output}"
