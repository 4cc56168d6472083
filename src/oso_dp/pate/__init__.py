"""PATE: labels of public inputs by a private vote of teachers (Papernot et al. 2017, 2018)."""

from oso_dp.pate.aggregate import VotingResult, aggregate

__all__ = ["VotingResult", "aggregate"]
