"""A user's own model and data under a privacy budget, with the study's loop and mechanism."""

from oso_dp.private.statement import Statement
from oso_dp.private.train import train_private
from oso_dp.private.trained import History, PrivateModel, load_private

__all__ = ["History", "PrivateModel", "Statement", "load_private", "train_private"]
