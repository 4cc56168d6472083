"""The study's workflow. config/README.md explains the configuration; `snakemake -n` lists pending work."""

from snakemake.utils import min_version

min_version("9.0")


if not workflow.configfiles:  # a --configfile replaces the paper's configuration

    configfile: "config/paper.yaml"


report: "workflow/report/workflow.rst"


# For --software-deployment-method apptainer: built from workflow/container/oso.def.
container: "build/oso.sif"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/gradient_cosine.smk"
include: "workflow/rules/adaptation_signs.smk"


rule all:
    default_target: True
    input:
        BUILD / "collected.txt",
        BUILD / "published.txt",
