rule data:
    """Fetch, verify and normalise one data set; a local folder (OSO_DATA_DIR) goes first."""
    output:
        "build/data/{dataset}.npz",
    log:
        "build/data/{dataset}.log",
    conda:
        "../../environment.yml"
    shell:
        "oso data {wildcards.dataset} --output {output} 2> >(tee {log} >&2)"
