rule data:
    """Fetch, verify and normalise one data set; a local folder (OSO_DATA_DIR) goes first.

    Where Snakemake runs: a cluster's nodes often reach no network.
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
