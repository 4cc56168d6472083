FOLLOWED = {"mnist": 250, "fashion_mnist": 250}  # data set -> steps


rule signs:
    """The signs that move Online's C and rho, with and without noise, in one run of each data set."""
    input:
        plan=BUILD / "plan.json",
        data=ancient(expand("build/data/{dataset}.npz", dataset=FOLLOWED)),
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
        commands=lambda wildcards, input, output, threads: " && ".join(
            f"oso signs --plan {input.plan} --cohort {online_on(dataset)} --learning-rate 1"
            f" --data {data} --output {output} --steps {steps} --threads {threads}"
            for (dataset, steps), data in zip(FOLLOWED.items(), input.data)
        ),
    shell:
        "( {params.commands} ) 2> >(tee {log} >&2)"
