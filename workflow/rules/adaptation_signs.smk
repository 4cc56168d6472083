RECORDED_STEPS = 250


rule signs:
    """Signs that adapt Online's C and rho, with and without noise, in one run of each data set."""
    input:
        plan=BUILD / "plan.json",
        mnist=ancient("build/data/mnist.npz"),
        fashion_mnist=ancient("build/data/fashion_mnist.npz"),
    output:
        BUILD / "adaptation_signs.csv",
    log:
        LOGS / "adaptation_signs.log",
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
        mnist=lambda wildcards: largest_online_cohort("mnist"),
        fashion_mnist=lambda wildcards: largest_online_cohort("fashion_mnist"),
        steps=RECORDED_STEPS,
    shell:
        "( oso diagnose signs --plan {input.plan:q} --cohort {params.mnist:q} --learning-rate 1"
        " --data {input.mnist:q} --output {output:q} --steps {params.steps:q} --threads {threads:q}"
        " && oso diagnose signs --plan {input.plan:q} --cohort {params.fashion_mnist:q} --learning-rate 1"
        " --data {input.fashion_mnist:q} --output {output:q} --steps {params.steps:q}"
        " --threads {threads:q} ) 2> >(tee -i {log:q} >&2)"
