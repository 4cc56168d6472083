"""What to run: from a configuration to cohorts and runs. Knows no tensor."""
