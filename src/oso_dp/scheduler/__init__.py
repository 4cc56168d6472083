"""Train the most valuable missing runs of a study until a deadline; see
docs/internals/running_at_scale.md.

`python -m oso_dp.scheduler --help`. It needs torch, numpy, pandas and pyarrow only.
"""
