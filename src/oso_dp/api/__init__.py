"""A user's own model and data under a privacy budget, with the study's loop and mechanism."""

from oso_dp.api.model import History, PrivateModel, load_private
from oso_dp.api.search import SearchResult, search_private
from oso_dp.api.statement import Statement
from oso_dp.api.train import train_private

__all__ = [
    "History",
    "PrivateModel",
    "SearchResult",
    "Statement",
    "load_private",
    "search_private",
    "train_private",
]
