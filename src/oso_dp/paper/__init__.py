"""The paper's printed hyperparameters and results, as data."""
