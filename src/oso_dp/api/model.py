"""A privately trained model: the model, what it cost, how C and rho moved; saved and loaded."""

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

from oso_dp.api.privacy_cost import PrivacyCost
from oso_dp.api.statement import Statement
from oso_dp.errors import OsoError
from oso_dp.optional_dependencies import describe_missing
from oso_dp.privacy.ledger import Ledger
from oso_dp.training.checkpoint import load_checkpoint, save_checkpoint
from oso_dp.training.user_model import UserModel

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "oso private model 3"


def to_device(state: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A training's state with all its tensors there."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device)
        return {key: moved(one) for key, one in value.items()} if isinstance(value, dict) else value

    return {name: moved(value) for name, value in state.items()}


@dataclass
class History:
    """One entry per step, in the order of the steps; NaN where a method has no such value."""

    step: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)  # C_t, with which the step clipped
    learning_rate: list[float] = field(default_factory=list)  # rho_t, with which it moved
    score_step: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)  # what `evaluate` gave after these steps

    def copy(self) -> History:
        """Another one with the same entries."""
        return History(**{name: list(values) for name, values in vars(self).items()})

    def add_evaluations(self, rows: list[dict[str, Any]]) -> None:
        """Of evaluations, which may begin with those that are here already."""
        for row in rows:
            if row["step"] not in self.score_step:
                self.score_step.append(row["step"])
                self.score.append(row["value"])

    def arrays(self) -> dict[str, np.ndarray]:
        """Each of them as an array."""
        return {name: np.asarray(values) for name, values in vars(self).items()}

    def to_pandas(self) -> pd.DataFrame:
        """A row per step; `score` is missing where it was not asked for.

        OsoError names the extra that is missing where there is no pandas.
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
    """What `train_private` gives.

    status: finished, interrupted (training can go on), or diverged (a weight was no longer
    finite). The last two are paid for as if they had finished.
    """

    model: nn.Module  # a copy of the one that was given, with the new weights
    privacy_cost: (
        PrivacyCost  # all that the statement pays for: this training's ledger, and a search's
    )
    statement: Statement  # what is promised, in words and as data
    history: History  # C and rho of every step, and the scores that were asked for
    status: str
    run_id: str = field(repr=False)
    state: dict[str, Any] = field(repr=False)  # of the training, from which it goes on
    trained_with: dict[str, Any] = field(repr=False)  # what stays in training that goes on

    @property
    def ledger(self) -> Ledger:
        """What this model's own training released, sum by sum."""
        return self.privacy_cost.ledger

    @property
    def epsilon(self) -> float:
        """What is guaranteed, at delta: computed from the ledger, at most the budget.

        Of all planned steps, also where the training ended early.
        """
        return self.statement.epsilon

    @property
    def delta(self) -> float:
        """The one that was asked for."""
        return self.statement.delta

    def save(self, path: str | Path) -> None:
        """One file: weights, ledger, statement, history.

        OsoError where it cannot be written, or the path has another file than one that this
        training, or what it went on from, was saved as.
        """
        place = _path(path)
        _check_writable(place, self.run_id)
        user_model = UserModel(self.model)
        content = {
            "shapes": user_model.shapes,
            "statement": self.statement.to_json(),
            "history": vars(self.history),
            "status": self.status,
            "paid": self.privacy_cost.to_json(),
            "run_id": self.run_id,
            "state": self.state,
            "trained_with": self.trained_with,
            "untrained": _untrained(self.model),
            "weights": user_model.weights(torch.device("cpu")),
        }
        save_checkpoint(place, _FORMAT, content)


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise OsoError(f"path {path!r}: must be a file's name")
    return Path(path)


def _check_writable(path: Path, run_id: str) -> None:
    """A run that goes on has its own name behind that of the run before."""
    if not os.path.lexists(path):
        return
    try:  # a device or a pipe may have no end
        content = load_checkpoint(path, _FORMAT, "cpu") if path.is_file() else None
    except Exception:  # no model, or a damaged one: both may be worth something to somebody
        content = None
    if content is None:
        raise OsoError(f"{path}: exists and is not a model that oso saved; name another file")
    if not f"{run_id}/".startswith(f"{content.get('run_id')}/"):
        raise OsoError(f"{path}: exists and is another training's model; name another file")


def _untrained(model: nn.Module) -> dict[str, str]:
    """A digest of each parameter that is frozen and each buffer that a model's state has."""
    state = model.state_dict(keep_vars=True).items()
    fixed = {name: one for name, one in state if torch.is_tensor(one) and not one.requires_grad}
    return {name: _digest(one.detach().cpu()) for name, one in fixed.items()}


def _digest(values: Tensor) -> str:
    data = values.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return sha256(f"{values.dtype} {list(values.shape)} ".encode() + data).hexdigest()


def load_private(path: str | Path, model: nn.Module) -> PrivateModel:
    """What `save` wrote, its weights in a copy of `model`, which must have the same parameters.

    What it does not train must have the same values: frozen parameters and buffers are not in the
    file. Epsilon is computed again from the ledger. OsoError for a file that is damaged, or whose
    statement is not what its ledger says. Who forges both, and the file's checksum, is believed.
    """
    place = _path(path)
    if not place.is_file():
        raise OsoError(f"{path}: {'is no file' if place.exists() else 'no such file'}")
    user_model = UserModel(model)
    try:
        content = load_checkpoint(place, _FORMAT, "cpu")
        if content is None:
            raise ValueError("its format is another")
        statement = Statement.from_json(content["statement"])
        history = History(**content["history"])
        state, status, run_id = content["state"], str(content["status"]), str(content["run_id"])
        kept = {**content["trained_with"]}
        untrained = {str(name): str(digest) for name, digest in content["untrained"].items()}
        paid = PrivacyCost.from_json(content["paid"])
        weights = torch.as_tensor(content["weights"])
        shapes = [(str(name), list(shape)) for name, shape in content["shapes"]]
        agree = statement.describes(paid)
    except OsoError as error:
        line = str(error)
        raise OsoError(line if line.startswith(f"{path}: ") else f"{path}: {line}") from error
    except Exception as error:  # a damaged file fails in too many ways to list
        line = " ".join(str(error).split())
        raise OsoError(f"{path}: no model that oso saved, or damaged ({line})") from error
    if shapes != user_model.shapes:
        raise OsoError(f"{path}: its parameters are not those of this {type(model).__name__}")
    here = _untrained(model)
    for name in sorted({*untrained, *here}):
        if untrained.get(name) != here.get(name):
            raise OsoError(
                f"{path}: {name!r} of this {type(model).__name__}, which is not trained, is not "
                "what it was when the model was saved"
            )
    if not agree:
        raise OsoError(f"{path}: its ledger says another thing than its statement")
    made = user_model.with_weights(weights)
    return PrivateModel(made, paid, statement, history, status, run_id, state, kept)
