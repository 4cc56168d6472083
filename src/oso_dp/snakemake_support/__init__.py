"""What a study needs of Snakemake: one at a time, what its jobs may ask of Slurm, how far it is."""
