"""The workflow of a study of PATE: `snakemake --snakefile workflow/pate.smk --cores 2`.

Votes in shards of the teachers; labels and students for each aggregator and epsilon; one table.
"""

import json
import shlex
import sys
from pathlib import Path

from snakemake.utils import min_version

from oso_dp.errors import OsoError
from oso_dp.exit_codes import error_line
from oso_dp.pate.config import parse_pate_config
from oso_dp.results.pate_rows import FILE, read_rows
from oso_dp.snakemake_support.preflight import check_before_start, check_handed_over

min_version("9.0")

if not workflow.configfiles:

    configfile: "config/pate.yaml"


try:
    files = [Path(file) for file in workflow.configfiles]
    check_handed_over(config, files, workflow.config_settings.config)
    STUDY = parse_pate_config(dict(config), ", ".join(map(str, files)))
    BUILD = Path("build") / STUDY.name
    if workflow.is_main_process:
        is_stored = not read_rows(Path(STUDY.results) / FILE).empty
        # The lock is held while this process lives.
        STUDY_LOCK = check_before_start(
            BUILD, Path(".snakemake/locks"), sys.argv, is_stored=is_stored
        )
except OsoError as error:
    sys.exit(error_line(error))


container: "build/oso.sif"


VOTED = "{dataset}.{teachers}.seed{seed}"
ANSWERED = f"{VOTED}.{{aggregator}}.eps{{epsilon}}"

shell.prefix(
    "set -euo pipefail; "
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
    + (f"export OSO_DATA_DIR={shlex.quote(STUDY.data_dir)}; " if STUDY.data_dir else "")
)


wildcard_constraints:
    dataset="[a-z_0-9]+",
    aggregator="[a-z]+",


def whole_config(wildcards, input):
    """The configuration with the values of --config.

    Snakemake does not compare parameters that are functions of inputs: `decided_by` decides.
    """
    return json.dumps(config, sort_keys=True)


rule all:
    default_target: True
    input:
        BUILD / "collected.txt",


rule data:
    output:
        "build/data/{dataset}.npz",
    log:
        "build/data/{dataset}.log",
    localrule: True
    conda:
        "../environment.yml"
    shell:
        "oso data {wildcards.dataset} --output {output:q} > {log:q} 2> >(tee -a {log:q} >&2)"


rule votes:
    """Train a shard of the teachers."""
    input:
        data=ancient("build/data/{dataset}.npz"),
    output:
        BUILD / "votes" / f"{VOTED}.shard{{shard}}.npz",
    log:
        BUILD / "logs" / f"votes.{VOTED}.shard{{shard}}.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=2000,
        runtime=120,
    params:
        config=whole_config,
        decided_by=json.dumps(STUDY.teachers.model_dump(exclude={"count"})),  # a change trains anew
    shell:
        "echo {params.config:q} | oso pate votes - --dataset {wildcards.dataset} --teachers {wildcards.teachers}"
        " --seed {wildcards.seed} --shard {wildcards.shard} --data {input.data:q} --output {output:q}"
        " > {log:q} 2> >(tee -a {log:q} >&2)"


rule label:
    """Answer the queries privately."""
    input:
        data=ancient("build/data/{dataset}.npz"),
        votes=[
            BUILD / "votes" / f"{VOTED}.shard{shard}.npz" for shard in range(STUDY.teachers.shards)
        ],
    output:
        BUILD / "labels" / f"{ANSWERED}.npz",
    log:
        BUILD / "logs" / f"label.{ANSWERED}.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        config=whole_config,
        decided_by=lambda wildcards: (
            f"{STUDY.find_aggregator(wildcards.aggregator).options_text({'epsilons'})}, {STUDY.delta}"
        ),
        votes=lambda wildcards, input: [f"--votes={path}" for path in input.votes],
    shell:
        "echo {params.config:q} | oso pate label - --dataset {wildcards.dataset} --teachers {wildcards.teachers}"
        " --seed {wildcards.seed} --data {input.data:q} {params.votes:q}"
        " --aggregator {wildcards.aggregator} --epsilon {wildcards.epsilon} --output {output:q}"
        " > {log:q} 2> >(tee -a {log:q} >&2)"


rule student:
    """Train students on the labels."""
    input:
        data=ancient("build/data/{dataset}.npz"),
        labels=BUILD / "labels" / f"{ANSWERED}.npz",
    output:
        BUILD / "students" / f"{ANSWERED}.parquet",
    log:
        BUILD / "logs" / f"student.{ANSWERED}.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        config=whole_config,
        decided_by=json.dumps(STUDY.student.model_dump()),
    shell:
        "echo {params.config:q} | oso pate student - --data {input.data:q} --labels {input.labels:q}"
        " --output {output:q} > {log:q} 2> >(tee -a {log:q} >&2)"


rule collect:
    input:
        [
            BUILD / "students" / f"{dataset}.{teachers}.seed{seed}.{name}.eps{epsilon:g}.parquet"
            for dataset in STUDY.datasets
            for teachers in STUDY.teachers.count
            for seed in STUDY.seeds
            for name, aggregator in STUDY.aggregators.by_name.items()
            for epsilon in aggregator.epsilons or STUDY.epsilons
        ],
    output:
        BUILD / "collected.txt",
    log:
        BUILD / "logs" / "collect.log",
    localrule: True
    conda:
        "../environment.yml"
    params:
        results=STUDY.results,
    shell:
        "( oso pate collect {input:q} --results {params.results:q} > {output:q}"
        " && oso pate account {params.results:q} ) > {log:q} 2> >(tee -a {log:q} >&2)"
