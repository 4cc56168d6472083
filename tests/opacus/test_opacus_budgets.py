"""A budget that is very large: one line, or an answer, within seconds."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from tests.opacus.helpers import (
    QUIET,
    AdaptivePrivacyEngine,
    examples,
    loader_of,
    make,
    make_engine,
    make_with_epsilon,
    refused,
)

from oso_dp.accounting.accountants import compute_epsilon_of_releases
from oso_dp.errors import OsoError
from oso_dp.opacus import accountant_steps
from oso_dp.opacus.accountant_steps import calibrate_noise_multiplier, check_target
from oso_dp.privacy.sampling import PoissonSampling

pytestmark = [
    *(pytest.mark.filterwarnings(text) for text in QUIET),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),  # along Opacus's search
]
IGNORE_RANGE = "ignore:get_epsilon. .*noise is bounded"


def noise_for(
    epsilon: float, accountant: str, epochs: float = 1
) -> tuple[AdaptivePrivacyEngine, float]:
    engine = make_engine(accountant=accountant)
    _, optimizer, _ = make_with_epsilon(engine, target_epsilon=epsilon, epochs=epochs)
    return engine, optimizer.noise_multiplier


@pytest.mark.parametrize(
    ("epsilon", "accountant", "message"),
    [
        (1e6, "rdp", r"^target_epsilon: 1e\+06; must be <= \d[\d.]+, the cost of \d+ steps"),
        (1e300, "rdp", r"^target_epsilon: 1e\+300; must be <= .*the smallest noise multiplier"),
        (101.0, "prv", "^target_epsilon: 101; must be <= 100 with accountant prv"),
        (1e6, "prv", r"^target_epsilon: 1e\+06; must be <= 100 with accountant prv"),
    ],
)
def test_check_target_unreachable_epsilon_rejected(epsilon, accountant, message) -> None:
    refused(lambda: noise_for(epsilon, accountant), message)


@pytest.mark.parametrize(
    ("epsilon", "accountant"),
    [(500.0, "rdp"), pytest.param(100.0, "prv", marks=pytest.mark.nightly)],
)
def test_calibrate_noise_multiplier_large_epsilon_kept(epsilon, accountant) -> None:
    engine, nu = noise_for(epsilon, accountant)
    assert 0.05 <= nu < 0.3
    batches = len(loader_of(*examples()))
    engine.accountant.history = [(nu, 1 / batches, batches)]
    assert 0.99 * epsilon < engine.accountant.get_epsilon(1e-5) <= epsilon


@pytest.mark.parametrize("epochs", [1, 1.9])
def test_calibrate_noise_multiplier_partial_epoch_covered(epochs: float) -> None:
    engine, nu = noise_for(2.0, "rdp", epochs)
    batches = len(loader_of(*examples()))
    engine.accountant.history = [(nu, 1 / batches, int(epochs * batches))]
    assert 1.95 < engine.accountant.get_epsilon(1e-5) <= 2.0


@pytest.mark.parametrize(("accountant", "delta"), [("rdp", 1e-9), ("prv", 1e-7), ("rdp", 0.02)])
def test_calibrate_noise_multiplier_arguments_passed(delta, accountant, monkeypatch) -> None:
    asked = {}

    def noise(**given) -> float:
        asked.update(given)
        return 1.0

    monkeypatch.setattr("oso_dp.opacus.accountant_steps.get_noise_multiplier", noise)
    make_with_epsilon(make_engine(accountant=accountant), target_delta=delta, epochs=3)
    assert (asked["target_epsilon"], asked["target_delta"]) == (2.0, delta)
    assert (asked["sample_rate"], asked["steps"]) == (0.1, 30)
    assert asked["accountant"] == accountant


@pytest.mark.filterwarnings(IGNORE_RANGE)
@pytest.mark.parametrize("noise_multiplier", [1e-9, 1e-4, 0.02])
def test_get_epsilon_prv_small_noise_rejected(noise_multiplier) -> None:
    engine = engine_after(3, "prv", noise_multiplier, 0.1)
    with pytest.raises(OsoError, match=r"^accountant: 'prv' for .* takes minutes") as raised:
        engine.get_epsilon(1e-5)
    rdp = engine_after(3, "rdp", noise_multiplier, 0.1).get_epsilon(1e-5)
    assert float(str(raised.value).rpartition(" ")[2]) == pytest.approx(rdp, rel=1e-3)


def engine_after(
    steps: int, accountant: str = "prv", nu: float = 1.0, rate: float = 0.01
) -> AdaptivePrivacyEngine:
    """As one whose optimizer released so many steps."""
    engine = make_engine(accountant=accountant)
    engine.accountant.history = [(nu, rate, steps)] if steps else []
    return engine


@pytest.mark.parametrize("steps", [0, 10])
@pytest.mark.parametrize("accountant", ["rdp", "prv"])
@pytest.mark.parametrize("delta", [0.0, 1, math.nan, None])
def test_get_epsilon_impossible_delta_rejected(delta, accountant, steps) -> None:
    refused(
        lambda: engine_after(steps, accountant).get_epsilon(delta),
        r"^delta: .*; must be a (finite )?number > 0 and < 1$",
    )


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
@pytest.mark.parametrize("delta", [1e-5, 1e-40])
def test_get_epsilon_without_steps_returns_zero(delta, accountant) -> None:
    assert engine_after(0, accountant).get_epsilon(delta) == 0.0


@pytest.mark.parametrize(("nu", "delta", "warns"), [(0.1, 1e-5, True), (0.5, 1e-5, False)])
def test_get_epsilon_small_noise_warns(nu, delta, warns) -> None:
    engine = engine_after(3, "rdp", nu, 1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert engine.get_epsilon(delta) > 0
    said = [str(one.message) for one in caught if "noise is bounded" in str(one.message)]
    assert len(said) == warns
    assert all(one.startswith(f"get_epsilon: noise multiplier {nu}: ") for one in said)


@pytest.mark.filterwarnings(IGNORE_RANGE)
@pytest.mark.parametrize(
    ("delta", "steps"), [(9e-12, 10), (1e-13, 5000), (1e-40, 10), (4e-11, 5000)]
)
def test_get_epsilon_unresolved_delta_rejected(delta: float, steps: int) -> None:
    least = {10: "1e-11", 5000: "5e-11"}[steps]
    rdp = engine_after(steps, "rdp").get_epsilon(delta)
    assert 0 < rdp < 100
    with pytest.raises(OsoError, match=rf"^delta: {delta}; must be >= {least} ") as raised:
        engine_after(steps).get_epsilon(delta)
    said = float(str(raised.value).rpartition(" epsilon is ")[2])
    assert said == pytest.approx(rdp, rel=0.2)


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
@pytest.mark.parametrize(("delta", "nu"), [(0.5, 1.0), (0.1, 1e3)])
def test_get_epsilon_large_delta_nonnegative(delta, nu, accountant) -> None:
    assert 0 <= engine_after(10, accountant, nu).get_epsilon(delta) < 0.1


@pytest.mark.parametrize(("epsilon", "delta"), [(0.005, 1e-5), (2.0, 2e-11)])
def test_calibrate_noise_multiplier_edge_budget_kept(epsilon, delta) -> None:
    noise = calibrate_noise_multiplier("prv", epsilon, delta, 10, 30, epsilon / 10)
    spent = compute_epsilon_of_releases({(PoissonSampling(0.1), noise): 30}, delta, "prv")
    assert 0.8 * epsilon - 1e-5 <= spent <= epsilon
    refused(
        lambda: check_target(epsilon, 1e-12, 10, 30, engine_after(0).accountant),
        r"^target_delta: 1e-12; must be >= 1e-11 for accountant",
    )


def test_calibrate_noise_multiplier_underpriced_noise_replaced(monkeypatch) -> None:
    def too_little(self, delta, **given) -> float:
        return 0.95 if self.history[0][0] < 0.8 else 0.0

    monkeypatch.setattr("opacus.accountants.PRVAccountant.get_epsilon", too_little)
    noise = calibrate_noise_multiplier("prv", 1.0, 1e-5, 10, 30, 0.1)
    assert compute_epsilon_of_releases({(PoissonSampling(0.1), noise): 30}, 1e-5, "pld") <= 1.0


@pytest.mark.filterwarnings(IGNORE_RANGE)
@pytest.mark.parametrize(
    ("delta", "said"), [(1e-40, "^delta: 1e-40; must be >="), (1e-5, "^target_epsilon: 2; ")]
)
def test_make_private_with_epsilon_spent_rejected(delta: float, said: str) -> None:
    refused(lambda: make_with_epsilon(engine_after(10), target_delta=delta), said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon: 0.0"),
        ({"target_delta": 1.0}, "target_delta: 1.0; must be a number > 0 and < 1"),
        ({"epochs": 0}, "epochs: 0; must be a number >= 1"),
        ({"data_loader": None}, "must be a DataLoader"),
    ],
)
def test_make_private_with_epsilon_invalid_rejected(arguments, message) -> None:
    refused(lambda: make_with_epsilon(make_engine(), **arguments), message)


def test_calibrate_noise_multiplier_failed_search_rejected(monkeypatch) -> None:
    def too_low(**arguments: Any) -> float:
        raise ValueError("The privacy budget is too low.")

    monkeypatch.setattr(accountant_steps, "get_noise_multiplier", too_low)
    said = "target_epsilon: 2; The privacy budget is too low"
    refused(lambda: make_with_epsilon(make_engine()), said)


def test_make_private_with_epsilon_kept() -> None:
    """Of 93 batches, where int(1 / (1 / 93)) is 92."""
    engine, loader = make_engine(), loader_of(*examples(count=186), batch_size=2)
    _, optimizer, private = make_with_epsilon(
        engine, data_loader=loader, target_delta=1e-3, epochs=2, threshold_rate=0.01,
        epsilon_tolerance=0.1,
    )  # fmt: skip
    assert len(private) == len(loader) == 93
    assert private.sample_rate == optimizer.ledger.sampling.rate == 1 / 93
    engine.accountant.history = [(optimizer.noise_multiplier, 1 / 93, 2 * 93)]
    assert 1.9 < engine.get_epsilon(1e-3) <= 2.0


def test_get_epsilon_two_noises_added() -> None:
    engine, more = engine_after(100), engine_after(100)
    more.accountant.history = [(1.0, 0.01, 60), (2.0, 0.05, 30), (1.0, 0.01, 40)]
    assert engine.get_epsilon(1e-5) + 0.1 < more.get_epsilon(1e-5)


def test_make_private_with_epsilon_twice_rejected() -> None:
    engine = make_engine()
    make_with_epsilon(engine)
    refused(lambda: make_with_epsilon(engine), "this engine has made another training private")


def test_make_private_with_epsilon_multiplier_rejected() -> None:
    message = "noise_multiplier follows from target_epsilon; leave it out, or call make_private"
    refused(lambda: make_with_epsilon(make_engine(), noise_multiplier=1.0), message)


def test_make_private_with_epsilon_numpy_accepted() -> None:
    given = {"target_epsilon": np.float32(2), "target_delta": np.float64(1e-5)}
    _, optimizer, _ = make_with_epsilon(make_engine(), epochs=np.int64(1), **given)
    _, same, _ = make_with_epsilon(make_engine())
    assert optimizer.noise_multiplier == same.noise_multiplier


@pytest.mark.parametrize("noise", [0, -1.0, math.nan, math.inf, 1e-21, torch.ones(())])
def test_optimizer_invalid_scheduled_noise_rejected(noise) -> None:
    made = make("auto_s")
    made.optimizer.noise_multiplier = noise
    message = "^noise_multiplier: .*; must be a (finite )?number >= 1e-20 and <= 1e"
    refused(lambda: made.step(*examples(count=5)), message, made)
