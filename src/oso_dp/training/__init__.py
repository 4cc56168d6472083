"""The loop, one job, checkpoints, evaluation."""
