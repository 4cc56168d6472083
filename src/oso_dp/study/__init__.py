"""The study: configuration, cohorts and runs, identities, calibration and plan. No tensors."""
