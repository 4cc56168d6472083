"""scikit-learn's estimators: its own checks, and trainings that are paid for once each."""

import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from oso_dp import OsoError
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.api.estimators import PrivacyAccount, PrivateClassifier, PrivateRegressor
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

# Enough for scikit-learn's checks to see that something is learned; steps of all examples.
LEARNING = {
    "epsilon": 500.0,
    "epochs": 60,
    "method": "fixed_threshold",
    "training_options": {"threshold": 1.0, "learning_rate": 0.5},
}
QUICK = {"epsilon": 1.0, "delta": 1e-4, "epochs": 2, "batch_size": 50}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(300, 4))
    inputs.flags.writeable = False  # as a pandas table's values
    return inputs, np.where(inputs[:, 0] > 0, "yes", "no")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_estimator_passes_sklearn_checks(kind) -> None:
    """The noise is seeded, since the checks of scikit-learn need repeatable results."""
    results = check_estimator(
        kind(**LEARNING, public=True, random_state=0), on_fail=None, on_skip=None
    )
    failed = [one["check_name"] for one in results if one["status"] not in ("passed", "skipped")]
    assert failed == []
    assert len(results) > 40


def test_private_classifier_learns_within_budget(rows) -> None:
    inputs, targets = rows
    fitted = PrivateClassifier(
        epsilon=8.0, epochs=20, batch_size=100, public=True, random_state=1
    ).fit(*rows)
    assert fitted.score(inputs, targets) > 0.85
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert 7.9 < fitted.statement_.epsilon <= 8.0
    assert fitted.n_iter_ == fitted.private_model_.ledger.step_count == 60
    chances = fitted.predict_proba(inputs)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (fitted.classes_[chances.argmax(axis=1)] == fitted.predict(inputs)).all()


def test_private_regressor_learns(rows) -> None:
    inputs, _ = rows
    fitted = PrivateRegressor(epsilon=20.0, epochs=30, batch_size=100, public=True, random_state=1)
    assert fitted.fit(inputs, inputs[:, 0] / 3).score(inputs, inputs[:, 0] / 3) > 0.5


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_estimator_only_public_seed_repeats(kind, rows) -> None:
    inputs = rows[0]
    targets = (inputs[:, 0] > 0).astype(float)

    def outputs(**options) -> np.ndarray:
        fitted = kind(**QUICK, **options).fit(inputs, targets)
        return torch.cat([p.detach().flatten() for p in fitted.module_.parameters()]).numpy()

    assert np.array_equal(
        outputs(public=True, random_state=3), outputs(public=True, random_state=3)
    )
    assert not np.array_equal(
        outputs(public=True, random_state=3), outputs(public=True, random_state=4)
    )
    # A seed alone makes no noise that anyone could subtract: scikit-learn sets it by itself.
    assert not np.array_equal(outputs(random_state=9), outputs(random_state=9))


def test_private_classifier_own_model_trained(rows) -> None:
    def make(features: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, 7), nn.Tanh(), nn.Linear(7, outputs))

    options = {"optimizer": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01)}
    fitted = PrivateClassifier(
        **QUICK, model=make, training_options=options, public=True, random_state=0
    )
    assert fitted.fit(*rows).module_[0].out_features == 7


PAID = [
    lambda one, rows: one.fit(*rows),
    lambda one, rows: clone(one).fit(*rows),
    lambda one, rows: clone(clone(one)).fit(*rows),
    lambda one, rows: cross_val_score(one, *rows, cv=2, error_score="raise"),
    lambda one, rows: make_pipeline(FunctionTransformer(), clone(one)).fit(*rows),
]


@pytest.mark.parametrize("again", PAID)
def test_estimator_second_fit_requires_account(again, rows) -> None:
    one = PrivateClassifier(**QUICK).fit(*rows)
    with pytest.raises(
        OsoError, match="this estimator or a clone of it was trained before, and each f"
    ):
        again(one, rows)
    paid = PrivateClassifier(**QUICK, account=PrivacyAccount(9.0, 1e-4)).fit(*rows)
    again(paid, rows)
    assert len(paid.account.ledgers) > 1


@pytest.mark.parametrize("account", [PrivacyAccount(9.0, 1e-4), None])
def test_estimator_forked_process_rejected(rows, monkeypatch, account) -> None:
    """A forked process would charge its own copy of the account, not the parent's."""
    one = PrivateClassifier(**QUICK, account=account)
    monkeypatch.setattr("oso_dp.api.estimators.os.getpid", lambda: -1)
    with pytest.raises(OsoError, match=r"in another process|was trained before"):
        one.fit(*rows)
    assert account is None or account.ledgers == []


def test_estimator_cross_validation_requires_account(rows) -> None:
    with pytest.raises(OsoError, match="or a clone of it was trained before"):
        cross_val_score(PrivateClassifier(**QUICK), *rows, cv=2, error_score="raise")


def test_privacy_account_charges_validation_and_search(rows) -> None:
    """The account composes the ledgers of all trainings of cross-validation and grid search."""
    account = PrivacyAccount(8.0, 1e-4)
    one = PrivateClassifier(**QUICK, account=account)
    cross_val_score(one, *rows, cv=3, error_score="raise")
    assert len(account.ledgers) == 3
    search = GridSearchCV(one, {"hidden": [(4,), (8,)]}, cv=2, error_score="raise").fit(*rows)
    assert len(account.ledgers) == 3 + 4 + 1
    assert account.spent == compute_epsilon(account.ledgers, 1e-4)
    assert 1.0 < account.spent <= 8.0
    ledger = search.best_estimator_.private_model_.ledger
    paid = account.ledgers[-1]
    assert (paid.sampling, paid.step_count) == (ledger.sampling, ledger.step_count)
    alone = compute_epsilon([paid], 1e-4)
    assert alone == pytest.approx(compute_epsilon([ledger], 1e-4), rel=1e-3)


def test_privacy_account_overspending_rejected(rows) -> None:
    account = PrivacyAccount(2.0, 1e-4)
    one = PrivateClassifier(**QUICK, account=account)

    def fit_often() -> None:
        for _ in range(20):
            one.fit(*rows)

    with pytest.raises(OsoError, match=r"account: epsilon .* of 2 is spent, and this training wou"):
        fit_often()
    assert 1.0 < account.spent <= 2.0
    assert len(account.ledgers) > 1
    spent = account.spent
    with pytest.raises(OsoError, match="account: epsilon"):
        clone(one).fit(*rows)
    assert account.spent == spent


def test_estimator_rejected_fit_refunded(rows) -> None:
    account = PrivacyAccount(2.0, 1e-4)
    one = PrivateClassifier(**QUICK, account=account, method="sgd")
    with pytest.raises(OsoError, match="method: 'sgd'"):
        one.fit(*rows)
    assert account.ledgers == []
    alone = PrivateClassifier(**QUICK, method="sgd")
    with pytest.raises(OsoError, match="method: 'sgd'"):
        alone.fit(*rows)
    assert alone.set_params(method=None).fit(*rows).n_iter_ == 12


def test_account_bounded_noise_rejected(rows) -> None:
    """A training with a large delta does not count in an account with a tiny one."""
    account = PrivacyAccount(120.0, 1e-12)
    one = PrivateClassifier(**{**QUICK, "epsilon": 24.0, "delta": 1e-2}, account=account)
    with pytest.raises(OsoError, match="noise is bounded"):
        one.set_params(batch_size=len(rows[0]), epochs=1).fit(*rows)
    assert account.ledgers == []


@pytest.mark.parametrize("copied", [deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_estimator_copies_share_training_count(copied, rows) -> None:
    """Copies of an unfitted estimator share one count, so only one copy may train."""
    one = PrivateClassifier(**QUICK)
    copies = [copied(one) for _ in range(2)]
    with pytest.raises(OsoError, match="was trained before"):
        [each.fit(*rows) for each in copies]


def test_privacy_account_charges_bagging(rows) -> None:
    """BaggingClassifier seeds its estimators, and the account is charged for each of them."""
    account = PrivacyAccount(9.0, 1e-4)
    one = PrivateClassifier(**QUICK, account=account)
    BaggingClassifier(one, n_estimators=3, max_samples=200, bootstrap=False).fit(*rows)
    assert len(account.ledgers) == 3


def test_privacy_account_threads_never_overspend() -> None:
    account = PrivacyAccount(1.0, 1e-4)
    ledger = Ledger(PoissonSampling(1.0), [((SumQuery("step", 5.0),), 1)])

    def charge(_: int) -> bool:
        try:
            account.charge(ledger)
        except OsoError:
            return False
        return True

    alone = 0
    while charge(0):
        alone += 1
    account.ledgers.clear()
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(charge, range(8 * alone))) == alone
    assert account.spent <= 1.0


def test_training_options_accountant_rejected(rows) -> None:
    one = PrivateClassifier(**QUICK, training_options={"accountant": "pld"})
    with pytest.raises(OsoError, match="training_options: 'accountant' cannot be given there"):
        one.fit(*rows)


def test_privacy_account_pickling_rejected(rows) -> None:
    one = PrivateClassifier(**QUICK, account=PrivacyAccount(2.0, 1e-4))
    with pytest.raises(OsoError, match="account: cannot be used in another process"):
        pickle.dumps(one)
    fitted = PrivateClassifier(**QUICK).fit(*rows)
    back = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(back.predict(rows[0]), fitted.predict(rows[0]))
    with pytest.raises(OsoError, match="was trained before"):
        back.fit(*rows)


def test_estimator_interrupted_fit_charged_and_raises(rows) -> None:
    """An interrupted fit keeps the model trained so far."""
    account = PrivacyAccount(2.0, 1e-4)

    def interrupt(model) -> float:
        signal.raise_signal(signal.SIGINT)
        return 1.0

    options = {"evaluate": interrupt, "evaluate_every": 1}
    one = PrivateClassifier(**QUICK, account=account, training_options=options)
    with pytest.raises(KeyboardInterrupt):
        one.fit(*rows)
    assert one.private_model_.status == "interrupted"
    assert account.spent > 0.9 * QUICK["epsilon"]
    assert one.predict(rows[0]).shape == rows[1].shape


@pytest.mark.parametrize("stops", [False, True])
def test_estimator_interrupt_differs_from_callback(stops: bool, rows) -> None:
    """A cross-validation goes on after a callback's stop, but not after Ctrl-C."""
    account = PrivacyAccount(9.0, 1e-4)

    def callback(evaluation) -> bool:
        if not stops:
            signal.raise_signal(signal.SIGINT)
        return stops

    options = {"callbacks": [callback], "evaluate_every": 3}
    one = PrivateClassifier(**QUICK, account=account, training_options=options)
    if stops:
        assert len(cross_val_score(one, *rows, cv=KFold(3))) == 3
    else:
        with pytest.raises(KeyboardInterrupt):
            cross_val_score(one, *rows, cv=KFold(3))
    assert len(account.ledgers) == (3 if stops else 1)


@pytest.mark.parametrize(
    ("place", "late"),
    [
        ("training.loop.check_model", False),
        ("training.user_model.UserModel.with_weights", True),
        ("api.trainer.list_releases", True),
    ],
)
def test_estimator_failed_fit_refunded_if_early(place, late: bool, rows, monkeypatch) -> None:
    """A fit is refunded only if it took no step, whatever raised the error."""
    account = PrivacyAccount(2.0, 1e-4)

    def fail(*given, **more) -> None:
        raise OsoError("failed")

    monkeypatch.setattr(f"oso_dp.{place}", fail)
    with pytest.raises(OsoError, match="failed"):
        PrivateClassifier(**QUICK, account=account).fit(*rows)
    assert (account.spent > 0) == late


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"epsilon": 0.0}, "epsilon: 0.0; must be a number > 0"),
        ({"batch_size": 301}, "batch_size: 301; must be <= the number of examples, 300"),
        ({"method": "sgd"}, "method: 'sgd'"),
        ({"training_options": {"threshold": 3}}, "threshold: given without a method"),
        ({"training_options": {"epochs": 3}}, "training_options: 'epochs' cannot be given there"),
        ({"model": nn.Linear(2, 2)}, "model: Linear; must be a function of the numbers of"),
    ],
)
def test_estimator_invalid_options_rejected(options, line: str, rows) -> None:
    with pytest.raises(OsoError) as error:
        PrivateClassifier(**{**QUICK, **options}, public=True, random_state=0).fit(*rows)
    assert line in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": -1}, {"epochs": "a"}, {"batch_size": 0}, {"epsilon": "x"}, {"delta": 2}],
)
def test_estimator_invalid_numbers_cost_nothing(wrong, rows) -> None:
    account = PrivacyAccount(5.0, 1e-4)
    (name,) = wrong
    with pytest.raises(OsoError, match=f"^{name}: "):
        PrivateClassifier(**{**QUICK, **wrong}, account=account).fit(*rows)
    assert account.ledgers == []


def test_private_classifier_one_class_rejected(rows) -> None:
    with pytest.raises(ValueError, match="y has one class; must have two or more"):
        PrivateClassifier(**QUICK, public=True, random_state=0).fit(rows[0], np.zeros(300))


def _fails(*sizes: int) -> nn.Module:
    raise ZeroDivisionError("in the factory")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hidden": 32}, OsoError, "hidden: 32; must be a sequence of integers >= 1"),
        ({"hidden": ("a",)}, OsoError, r"hidden: \('a',\); must be a sequence of integers >= 1"),
        ({"hidden": (8, 0)}, OsoError, r"hidden: \(8, 0\); must be"),
        ({"model": _fails}, ZeroDivisionError, "in the factory"),
        ({"random_state": "x"}, ValueError, "'x' cannot be used to seed"),
        ({"training_options": [1]}, OsoError, "training_options: list; must be a dictionary"),
    ],
)
def test_estimator_mistakes_before_training_cost_nothing(options, error, message, rows) -> None:
    account = PrivacyAccount(epsilon=1, delta=1e-5)
    estimator = PrivateClassifier(account=account, epsilon=1, delta=1e-5, **options)
    with pytest.raises(error, match=message):
        estimator.fit(*rows)
    assert account.spent == 0
    estimator.set_params(**dict.fromkeys(options) | {"hidden": (4,)}).fit(*rows)
    assert account.spent > 0
