"""Support for the Snakemake workflow: preflight checks, study lock, Slurm limits, progress."""
