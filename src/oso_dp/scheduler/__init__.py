"""Train the most valuable missing runs of a study until a deadline; see docs/campaign.md.

`python -m oso_dp.scheduler --help`. It needs torch, numpy, pandas and pyarrow only.
"""
