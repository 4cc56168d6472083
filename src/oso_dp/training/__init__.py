"""Training: the loop, jobs (runs of a cohort), checkpoints and evaluation."""
