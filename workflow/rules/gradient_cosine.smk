rule cosine:
    """Cosine of true and sanitized gradients in one run of the study (the paper's Figure 1)."""
    input:
        plan=BUILD / "plan.json",
        data=ancient("build/data/mnist.npz"),
    output:
        BUILD / "cosine.csv",
    log:
        LOGS / "cosine.log",
    conda:
        "../../environment.yml"
    threads: STUDY.threads_per_job
    resources:
        mem_mb=lambda wildcards, attempt: estimate_memory_mb(
            STUDY, COHORTS[largest_online_cohort("mnist")], attempt
        ),
        runtime=lambda wildcards, attempt: 120 * attempt,
        gpu=count_gpus(STUDY),
    params:
        cohort=lambda wildcards: largest_online_cohort("mnist"),
    shell:
        "oso diagnose cosine --plan {input.plan:q} --cohort {params.cohort:q} --data {input.data:q}"
        " --output {output:q} --threads {threads:q} 2> >(tee -i {log:q} >&2)"
