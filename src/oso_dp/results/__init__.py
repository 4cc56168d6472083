"""Parquet in, Parquet out: the tables `runs` and `evaluations`."""
