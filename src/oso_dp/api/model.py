"""A privately trained model with its privacy cost, statement and history of C and rho; saving and
loading.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.api.statement import Statement
from oso_dp.checkpoint import load_checkpoint, save_checkpoint
from oso_dp.errors import OsoError
from oso_dp.optional_dependencies import describe_missing
from oso_dp.privacy.ledger import Ledger
from oso_dp.training.user_model import UserModel

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "oso private model 4"


def to_device(state: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A copy of a training's state with all tensors on `device`."""
    moved: dict[str, Any] = tree_map_only(torch.Tensor, lambda one: one.to(device), dict(state))
    return moved


@dataclass
class History:
    """How the clipping threshold and the learning rate changed during a training.

    Attributes:
        step: step numbers, from 1, in order.
        threshold: C_t, the clipping threshold of each step; NaN if the method has none.
        learning_rate: rho_t times the schedule's factor (with `optimizer`, the factor of its
            learning rates) of each step; NaN if the method has none.
        score_step: steps after which `evaluate` was called.
        score: the values that `evaluate` returned after these steps.
    """

    step: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    score_step: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)

    def copy(self) -> History:
        """A copy with lists of its own."""
        return History(**{name: list(values) for name, values in vars(self).items()})

    def add_evaluations(self, rows: list[dict[str, Any]]) -> None:
        """Append evaluations; `rows` may begin with those that are here already."""
        for row in rows:
            if row["step"] not in self.score_step:
                self.score_step.append(row["step"])
                self.score.append(row["value"])

    def arrays(self) -> dict[str, np.ndarray]:
        """Each list as an array, by its name."""
        return {name: np.asarray(values) for name, values in vars(self).items()}

    def to_pandas(self) -> pd.DataFrame:
        """A table with a row per step; `score` is NaN at steps without an evaluation.

        Raises:
            OsoError: if pandas is not installed; the message names the extra to install.
        """
        with describe_missing("History.to_pandas"):
            import pandas as pd

        steps = pd.DataFrame(
            {name: vars(self)[name] for name in ("step", "threshold", "learning_rate")}
        )
        scores = pd.DataFrame({"step": self.score_step, "score": self.score})
        return steps.merge(scores, on="step", how="left")


@dataclass
class PrivateModel:
    """A privately trained model, the result of `train_private`.

    Attributes:
        model: a copy of the user's module with the trained weights, on the CPU.
        privacy_cost: all ledgers that the statement's epsilon covers: this training's, and those of
            the search that chose it.
        statement: the privacy guarantee, in words and as data.
        history: C and rho of every step, and the scores of `evaluate`.
        status: "finished", "interrupted" (`resume_from` can resume it) or "diverged" (a weight was
            not finite). An interrupted or diverged training costs as much as a finished one.
        run_id: the identity of the training.
        state: the state from which `resume_from` resumes.
        trained_with: the options that stay when training is resumed.
    """

    model: nn.Module
    privacy_cost: PrivacyCost
    statement: Statement
    history: History
    status: str
    run_id: str = field(repr=False)
    state: dict[str, Any] = field(repr=False)
    trained_with: dict[str, Any] = field(repr=False)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the steps that this training took.

        `epsilon` may count more: planned steps that were not taken, and a search. To compose this
        result with others on the same data use `privacy_cost.charged_ledgers()`.
        """
        return self.privacy_cost.ledger

    @property
    def epsilon(self) -> float:
        """The guaranteed epsilon at `delta`, computed from the ledgers; at most the budget.

        It counts all planned steps, even if the training ended early.
        """
        return self.statement.epsilon

    @property
    def delta(self) -> float:
        """The delta of the guarantee, as passed to the training."""
        return self.statement.delta

    def save(self, path: str | Path) -> None:
        """Write weights, ledgers, statement, history and state to one file.

        Args:
            path: a new file, or one that holds an earlier state of this training.

        Raises:
            OsoError: if the file cannot be written, or exists and is not of this training.
        """
        file = _to_path(path)
        _check_writable(file, self.run_id)
        user_model = UserModel(self.model)
        content = {
            "shapes": user_model.shapes,
            "statement": self.statement.to_json(),
            "history": vars(self.history),
            "status": self.status,
            "privacy_cost": self.privacy_cost.to_json(),
            "run_id": self.run_id,
            "state": self.state,
            "trained_with": self.trained_with,
            "untrained": untrained_digests(self.model),
            "weights": user_model.weights(torch.device("cpu")),
        }
        save_checkpoint(file, _FORMAT, content)


def _to_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise OsoError(f"path: {path!r}; must be a file name")
    return Path(path)


def _check_writable(path: Path, run_id: str) -> None:
    """The run id of a resumed training begins with that of the earlier one."""
    if not os.path.lexists(path):
        return
    try:  # a device or a pipe may have no end
        content = load_checkpoint(path, _FORMAT, "cpu") if path.is_file() else None
    except Exception:  # not a model, or a damaged one: neither is overwritten
        content = None
    if content is None:
        raise OsoError(f"{path}: exists and is not a model that oso saved; name another file")
    if not f"{run_id}/".startswith(f"{content.get('run_id')}/"):
        raise OsoError(f"{path}: exists and is another training's model; name another file")


def untrained_digests(model: nn.Module) -> dict[str, str]:
    """A digest of each frozen parameter and each buffer in the model's state."""
    return {
        name: _digest(value.detach().cpu())
        for name, value in model.state_dict(keep_vars=True).items()
        if torch.is_tensor(value) and not value.requires_grad
    }


def _digest(values: Tensor) -> str:
    data = values.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return sha256(f"{values.dtype} {list(values.shape)} ".encode() + data).hexdigest()


def load_private(path: str | Path, model: nn.Module) -> PrivateModel:
    """Load a file that `PrivateModel.save` wrote.

    Epsilon is computed again from the stored ledgers. This detects damage and inconsistency, not
    forgery: a file whose ledgers, statement and checksum were all forged is accepted.

    Args:
        path: the file.
        model: a module with the same parameters as the saved one; the weights are loaded into a
            copy. Frozen parameters and buffers are not in the file and must have the same values.

    Returns:
        The saved model, on the CPU.

    Raises:
        OsoError: if the file is missing or damaged, has another format or other parameters, or if
            its statement does not follow from its ledgers.
    """
    file = _to_path(path)
    if not file.is_file():
        raise OsoError(f"{path}: {'not a file' if file.exists() else 'no such file'}")
    user_model = UserModel(model)
    model = user_model.model
    try:
        content = load_checkpoint(file, _FORMAT, "cpu")
        if content is None:
            raise ValueError(f"not of the format {_FORMAT!r}")
        statement = Statement.from_json(content["statement"])
        history = History(**content["history"])
        state, status, run_id = content["state"], str(content["status"]), str(content["run_id"])
        trained_with = {**content["trained_with"]}
        untrained = {str(name): str(digest) for name, digest in content["untrained"].items()}
        cost = PrivacyCost.from_json(content["privacy_cost"])
        weights = torch.as_tensor(content["weights"])
        shapes = [(str(name), list(shape)) for name, shape in content["shapes"]]
        is_consistent = statement.describes(cost)
    except OsoError as error:
        line = str(error)
        raise OsoError(line if line.startswith(f"{path}: ") else f"{path}: {line}") from error
    except Exception as error:  # a damaged file fails in too many ways to list
        line = " ".join(str(error).split())
        raise OsoError(f"{path}: not a model saved by oso, or damaged ({line})") from error
    if shapes != user_model.shapes:
        raise OsoError(f"{path}: its parameters are not those of this {type(model).__name__}")
    current = untrained_digests(model)
    for name in sorted({*untrained, *current}):
        if untrained.get(name) != current.get(name):
            raise OsoError(
                f"{path}: {name!r} of this {type(model).__name__}, which is not trained, differs "
                "from its value when the model was saved"
            )
    if not is_consistent:
        raise OsoError(f"{path}: its statement does not follow from its ledgers")
    trained = user_model.with_weights(weights)
    return PrivateModel(trained, cost, statement, history, status, run_id, state, trained_with)
