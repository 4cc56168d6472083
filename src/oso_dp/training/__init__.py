"""The loop, per-example gradients, checkpoints, evaluation."""
