rule data:
    """Fetch, verify and normalise one data set."""
    output:
        "build/data/{dataset}.npz",
    log:
        "build/data/{dataset}.log",
    params:
        data_dir=f"--data-dir {DATA_DIR}" if DATA_DIR else "",
    conda:
        "../../environment.yml"
    shell:
        "oso data {wildcards.dataset} --output {output} {params.data_dir} 2> >(tee {log} >&2)"
