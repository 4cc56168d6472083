"""The public training API: DP training and search of a PyTorch model within an (epsilon, delta)
budget. `train_private` trains once, `search_private` runs a hyperparameter search, `load_private`
reads a saved `PrivateModel`, `check` says what would become of a model.
"""

from oso_dp.api.callbacks import Evaluation
from oso_dp.api.model import History, PrivateModel, load_private
from oso_dp.api.model_check import ModelCheck, check, replace_batch_norm
from oso_dp.api.search import SearchResult, search_private
from oso_dp.api.statement import Statement
from oso_dp.api.train import train_private

__all__ = [
    "Evaluation",
    "History",
    "ModelCheck",
    "PrivateModel",
    "SearchResult",
    "Statement",
    "check",
    "load_private",
    "replace_batch_norm",
    "search_private",
    "train_private",
]
