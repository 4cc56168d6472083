rule train:
    """Train a cohort (data set x method x k x epsilon), or a shard of it; resumes after a kill."""
    input:
        # A new plan restarts every job; jobs skip the runs that are in the store.
        plan=BUILD / "plan.json",
        data=lambda wildcards: ancient(f"build/data/{COHORTS[wildcards.cohort].data_file}"),
    output:
        runs=BUILD / "parts/{cohort}/shard{shard}/runs.parquet",
        evaluations=BUILD / "parts/{cohort}/shard{shard}/evaluations.parquet",
    log:
        LOGS / "train/{cohort}.shard{shard}.log",
    benchmark:
        BUILD / "benchmarks/{cohort}.shard{shard}.tsv"
    conda:
        "../../environment.yml"
    threads: STUDY.threads_per_job
    resources:
        mem_mb=lambda wildcards, attempt: estimate_memory_mb(
            STUDY, COHORTS[wildcards.cohort], attempt
        ),
        runtime=job_minutes,
        gpu=count_gpus(STUDY),
    params:
        runs=lambda wildcards: [run.run_id for run in shard_runs(wildcards)],
        folder=lambda wildcards, output: Path(output.runs).parent,
        store=STORE,
    shell:
        "oso train --plan {input.plan:q} --cohort {wildcards.cohort:q} --shard {wildcards.shard:q}"
        " --data {input.data:q} --output {params.folder:q} --store {params.store:q} --allow-missing-store"
        " --threads {threads:q} 2> >(tee -i {log:q} >&2)"
