"""As much of a study as fits into some minutes, where only torch, numpy, pandas and pyarrow are.

`python -m oso_dp.campaign --help`; docs/campaign.md walks through it.
"""
