rule data:
    """Download, verify and normalise one data set, from a local folder (OSO_DATA_DIR) if set.

    Runs where Snakemake runs: the nodes of a cluster often have no network.
    """
    output:
        "build/data/{prepared}.npz",
    log:
        "build/data/{prepared}.log",
    localrule: True
    conda:
        "../../environment.yml"
    resources:
        mem_mb=4000,
    params:
        dataset=lambda wildcards: DATA_FILES[f"{wildcards.prepared}.npz"].dataset,
        options=lambda wildcards: DATA_FILES[f"{wildcards.prepared}.npz"].data_options,
    shell:
        "oso data {params.dataset:q} {params.options:q} --output {output:q} > {log:q} 2> >(tee -a {log:q} >&2)"
