STEPS_FOLLOWED = 250


rule signs:
    """The signs that move Online's C and rho, with and without noise, in one run of each data set."""
    input:
        plan=BUILD / "plan.json",
        mnist=ancient("build/data/mnist.npz"),
        fashion_mnist=ancient("build/data/fashion_mnist.npz"),
    output:
        BUILD / "signs.csv",
    log:
        LOGS / "signs.log",
    conda:
        "../../environment.yml"
    threads: STUDY.threads_per_job
    resources:
        mem_mb=lambda wildcards, attempt: memory_mb(STUDY, COHORTS[online_on("mnist")], attempt),
        runtime=lambda wildcards, attempt: 120 * attempt,
        gpu=gpus(STUDY),
    params:
        mnist=lambda wildcards: online_on("mnist"),
        fashion_mnist=lambda wildcards: online_on("fashion_mnist"),
        steps=STEPS_FOLLOWED,
    shell:
        "( oso signs --plan {input.plan:q} --cohort {params.mnist:q} --learning-rate 1"
        " --data {input.mnist:q} --output {output:q} --steps {params.steps:q} --threads {threads:q}"
        " && oso signs --plan {input.plan:q} --cohort {params.fashion_mnist:q} --learning-rate 1"
        " --data {input.fashion_mnist:q} --output {output:q} --steps {params.steps:q}"
        " --threads {threads:q} ) 2> >(tee -i {log:q} >&2)"
