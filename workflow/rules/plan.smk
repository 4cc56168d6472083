rule plan:
    """The plan: each cohort with its calibrated noise multiplier."""
    output:
        BUILD / "plan.json",
    log:
        LOGS / "plan.log",
    conda:
        "../../environment.yml"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        config=json.dumps(STUDY.model_dump(mode="json", exclude={"data_dir"})),
        # A method's changed default makes other runs of the same configuration.
        runs=hashlib.sha256(" ".join(sorted(PLANNED_RUNS)).encode()).hexdigest(),
    shell:
        "echo {params.config:q} | oso plan --config - --output {output:q} 2> >(tee -i {log:q} >&2)"
