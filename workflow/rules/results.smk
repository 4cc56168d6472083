rule collect:
    """Add all job outputs to the results store. The store is no output: Snakemake deletes outputs."""
    input:
        runs=[part / "runs.parquet" for part in all_parts()],
        evaluations=[part / "evaluations.parquet" for part in all_parts()],
        plan=BUILD / "plan.json",
        texts=ancient(
            [
                f"build/data/{name}"
                for name in DATA_FILES
                if "words" in DATA_FILES[name].preparation
            ]
        ),
    output:
        BUILD / "collected.txt",
    log:
        LOGS / "collect.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        parts=lambda wildcards, input: [Path(path).parent for path in input.runs],
        store=STORE,
        data=lambda wildcards, input: [f"--data={path}" for path in input.texts],
    shell:
        "oso collect {params.parts:q} --store {params.store:q} --plan {input.plan:q} {params.data:q} > {output:q}.tmp 2> >(tee -i {log:q} >&2)"
        " && mv {output:q}.tmp {output:q}"
