"""A user's own model and data under a privacy budget, with the study's loop and mechanism."""

from oso_dp.private.private_search import PrivateSearch, search_private
from oso_dp.private.statement import Statement
from oso_dp.private.train import train_private
from oso_dp.private.trained import History, PrivateModel, load_private

__all__ = [
    "History",
    "PrivateModel",
    "PrivateSearch",
    "Statement",
    "load_private",
    "search_private",
    "train_private",
]
