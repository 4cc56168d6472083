"""scikit-learn estimators that train privately, and the account that several are charged to.

scikit-learn trains clones of an estimator: in cross-validation, in a grid search, in a pipeline
that is fitted again. Each training on private data costs its own epsilon. So all clones of an
estimator know of each other's trainings: without an account that they are charged to, the second
is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.api.budget import Budget, remaining_noise_multiplier
from oso_dp.api.callbacks import Evaluation
from oso_dp.api.train import train_private
from oso_dp.defaults import BATCH_SIZE, DELTA, EPOCHS, ROUNDING
from oso_dp.errors import OsoError
from oso_dp.gradients.random_numbers import seeded
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_range import check_ledgers
from oso_dp.privacy.sampling import PoissonSampling, count_steps
from oso_dp.value_checks import check_number

MakeModel = Callable[[int, int], nn.Module]  # numbers of features and of outputs


_MSG_PROCESS = (
    "account: cannot be used in another process, which would spend it twice; use n_jobs=1; to save "
    "a trained estimator, private_model_.save(path)"
)


class PrivacyAccount:
    """The privacy budget of several trainings on the same data, composed by RDP.

    It is shared by all clones of the estimators that it is given to. Which of these trainings a row
    is in (folds) must not depend on other rows, as stratified folds do, and a training may have
    each row once (no bootstrap samples). Epsilon and epochs of a training must not be chosen by
    looking at earlier ones. It is of one process. Scores on private rows (`score`,
    cross-validation, grid search) are not covered, nor is what a meta-estimator fits on held-out
    rows (calibration, stacking, a tuned threshold).

    Args:
        epsilon: total budget; > 0.
        delta: of the total; in (0, 1).
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.budget = Budget(epsilon, delta)
        self.ledgers: list[Ledger] = []
        self._lock, self._process = Lock(), os.getpid()

    @property
    def spent(self) -> float:
        """Epsilon of all trainings so far, by RDP."""
        return compute_epsilon(self.ledgers, self.budget.delta)

    def charge(self, ledger: Ledger) -> None:
        """Charge a training; OsoError, and no change, if not enough is left."""
        budget = self.budget
        if os.getpid() != self._process:
            raise OsoError(_MSG_PROCESS)
        with self._lock:
            check_ledgers(budget.delta, [*self.ledgers, ledger])
            total = compute_epsilon([*self.ledgers, ledger], budget.delta)
            if total > budget.epsilon * (1 + ROUNDING):
                raise OsoError(
                    f"account: epsilon {format_spent_epsilon(self.spent)} of {budget.epsilon:g} is "
                    f"spent, and this training would make it {format_spent_epsilon(total)}; train "
                    "fewer models, or each with a smaller epsilon"
                )
            self.ledgers.append(ledger)

    def refund(self, ledger: Ledger) -> None:
        """Take back the charge of a training that was refused before its first step."""
        with self._lock:
            self.ledgers.remove(ledger)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # of a copied estimator

    def __reduce__(self) -> Any:
        raise OsoError(_MSG_PROCESS)

    def __repr__(self) -> str:
        return f"PrivacyAccount(epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g})"


_NOT_OPTIONS = frozenset(
    {
        # What would make a training cost more than is charged.
        *("accountant", "randomness", "seed", "resume_from", "checkpoint", "checkpoint_every"),
        *("users", "local"),
        # What the estimator has as its own parameter, or sets itself.
        *("epsilon", "delta", "epochs", "batch_size", "method", "device"),
        *("model", "loss", "data", "progress"),
    }
)


class _Trainings:
    """How many trainings the clones of an estimator have made; shared by all copies."""

    def __init__(self, count: int = 0) -> None:
        self.count, self.lock, self.process = count, Lock(), os.getpid()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        return _Trainings, (1,)  # in another process the copies know nothing of each other


class _PrivateEstimator(BaseEstimator):
    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = DELTA,
        *,
        model: MakeModel | None = None,
        hidden: Sequence[int] = (32,),
        epochs: float = EPOCHS,
        batch_size: int | None = None,
        method: str | None = None,
        training_options: dict[str, Any] | None = None,
        account: PrivacyAccount | None = None,
        public: bool = False,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.epsilon, self.delta, self.model, self.hidden = epsilon, delta, model, hidden
        self.epochs, self.batch_size, self.method = epochs, batch_size, method
        self.training_options, self.account, self.public = training_options, account, public
        self.random_state, self.device = random_state, device
        self._trainings = _Trainings()

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        cloned._trainings = self._trainings
        return cloned

    def _fit(self, inputs: np.ndarray, targets: Tensor, outputs: int, loss: nn.Module) -> None:
        """Train on inputs [n, features] and targets [n, ...]."""
        given: Any = self.training_options or {}
        if not isinstance(given, Mapping):
            raise OsoError(f"training_options: {type(given).__name__}; must be a dictionary")
        refused = _NOT_OPTIONS & {*given}
        if refused:
            raise OsoError(f"training_options: {min(refused)!r} cannot be given there")
        if isinstance(self.model, nn.Module):
            raise OsoError(
                f"model: {type(self.model).__name__}; must be a function of the numbers of "
                "features and outputs that returns a module"
            )
        random = check_random_state(self.random_state)
        make = self.model or _MLPFactory(self.hidden)
        with seeded(int(random.randint(2**31)), torch.get_default_device()):
            module = make(inputs.shape[1], outputs)  # what fails here costs nothing
        seed = int(random.randint(2**31)) if self.public else None
        paid = None if self.public else self._pay(len(inputs))
        try:
            self._train(module, loss, inputs, targets, seed)
        except OsoError as error:
            if not getattr(error, "__notes__", None):  # refused before the first step
                self._refund(paid)
            raise

    def _train(
        self,
        module: nn.Module,
        loss: nn.Module,
        inputs: np.ndarray,
        targets: Tensor,
        seed: int | None,
    ) -> None:
        options, stopped_at = _watch_callbacks(self.training_options or {})
        result = train_private(
            module,
            loss,
            (torch.from_numpy(inputs), targets),
            epsilon=self.epsilon,
            delta=self.delta,
            epochs=self.epochs,
            batch_size=self.batch_size,
            method=self.method,
            randomness="system" if seed is None else "seeded",
            seed=seed,
            device=self.device,
            progress=False,
            **options,
        )
        self.private_model_ = result
        self.module_ = result.model.double().eval()  # so that outputs do not depend on the batch
        self.statement_ = result.statement
        self.n_iter_ = result.ledger.step_count
        if result.status == "interrupted" and not stopped_at:
            raise KeyboardInterrupt  # it is paid for; a cross-validation must not go on

    def _pay(self, examples: int) -> Ledger:
        """The ledger of the planned training, which is paid for."""
        Budget(self.epsilon, self.delta)  # refuses what is no budget
        check_number("epochs", self.epochs, gt=0)
        if self.batch_size is not None:
            check_number("batch_size", self.batch_size, ge=1)
        size = min(BATCH_SIZE, examples) if self.batch_size is None else self.batch_size
        if size > examples:
            raise OsoError(f"batch_size: {size}; must be <= the number of examples, {examples}")
        sampling = PoissonSampling.of(size, examples)
        steps = count_steps(self.epochs, examples, size)
        noise = remaining_noise_multiplier(sampling, steps, self.epsilon, self.delta, "rdp")
        ledger = Ledger(sampling, [((SumQuery("step", noise),), steps)])
        with self._trainings.lock:
            is_forked = self._trainings.process != os.getpid()
            if self.account is None and (self._trainings.count > 0 or is_forked):
                raise OsoError(
                    "fit: this estimator or a clone of it was trained before, and each fit costs "
                    "epsilon; pass account=PrivacyAccount(epsilon, delta), or for public data "
                    "public=True"
                )
            if self.account is not None:
                self.account.charge(ledger)
            self._trainings.count += 1
        return ledger

    def _refund(self, paid: Ledger | None) -> None:
        if paid is None:
            return
        with self._trainings.lock:
            self._trainings.count -= 1
        if self.account is not None:
            self.account.refund(paid)

    def _outputs(self, X: Any) -> np.ndarray:
        """float64 [n, outputs]."""
        check_is_fitted(self)
        inputs = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            outputs: np.ndarray = self.module_(torch.tensor(inputs)).numpy()
        return outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not self.public
        return tags


def _watch_callbacks(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """The options, and a list of the steps at which one of their callbacks will have stopped."""
    stopped_at: list[int] = []

    def watch(callback: Any) -> Any:
        def call(evaluation: Evaluation) -> bool:
            stops = bool(callback(evaluation))
            if stops:
                stopped_at.append(evaluation.step)
            return stops

        return call if callable(callback) else callback  # which is refused later

    callbacks = options.get("callbacks")
    if not isinstance(callbacks, Sequence):
        return dict(options), stopped_at
    return {**options, "callbacks": [watch(callback) for callback in callbacks]}, stopped_at


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):
    """A classifier that is differentially private for each row, by `train_private`.

    Features should lie within about [-1, 1] by public bounds: scaling by the data's own mean and
    deviation is not covered by epsilon, nor are scores on private rows. Classes, and the number of
    rows, count as public.

    Args:
        epsilon: of one call of `fit`.
        delta: in (0, 1), well below 1/n.
        model: a function of the numbers of features and outputs that returns a torch module.
            Default: a perceptron with hidden layers.
        hidden: units of each hidden layer of the default model.
        epochs: as in `train_private`.
        batch_size: as in `train_private`.
        method: as in `train_private`.
        training_options: further arguments of `train_private`, such as {"schedule": "constant"}.
        account: is charged for the trainings of all clones (cross-validation, grid search). Without
            one, a second training is refused.
        public: whether the data need no protection: noise is then seeded by random_state, and
            nothing is charged.
        random_state: of the initial parameters, and of the noise for public data.
        device: as in `train_private`.

    Attributes:
        classes_: the classes, sorted.
        module_: the trained torch module, in float64.
        private_model_: the `PrivateModel`.
        statement_: its privacy statement.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X [n, features] and classes y [n]."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__}: y has one class; must have two or more")
        loss = nn.CrossEntropyLoss(reduction="none")
        self._fit(X, torch.from_numpy(targets), len(self.classes_), loss)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, float64 [n, classes]."""
        probabilities: np.ndarray = torch.from_numpy(self._outputs(X)).softmax(dim=1).numpy()
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row."""
        likely = self._outputs(X).argmax(axis=1)
        classes: np.ndarray = self.classes_[likely]
        return classes


class PrivateRegressor(RegressorMixin, _PrivateEstimator):
    """A regressor that is differentially private for each row: mean squared error.

    Targets should lie within about [-1, 1], by public bounds. Arguments and attributes are those of
    `PrivateClassifier`, but for classes.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X [n, features] and numbers y [n]."""
        X, y = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        targets = torch.from_numpy(np.asarray(y, dtype=np.float32))[:, None]
        self._fit(X, targets, 1, nn.MSELoss(reduction="none"))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predicted number of each row, float64 [n]."""
        return self._outputs(X)[:, 0]


class _MLPFactory:
    """Makes a perceptron with these hidden layers."""

    def __init__(self, hidden: Sequence[int]) -> None:
        self.hidden = hidden

    def __call__(self, features: int, outputs: int) -> nn.Module:
        given: Any = self.hidden
        hidden = given if isinstance(given, Sequence | np.ndarray) else [None]
        if not all(isinstance(size, Integral) and int(size) >= 1 for size in hidden):
            raise OsoError(f"hidden: {given!r}; must be a sequence of integers >= 1")
        sizes, layers = [features, *map(int, hidden)], []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
