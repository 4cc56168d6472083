"""How often Online's signs were +, told from the C and rho that are stored."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from tests.methods.test_methods import make

from oso_dp.analysis.adaptation_signs import (
    coin_factor,
    coin_flip_fraction,
    count_adaptation_signs,
    sign_windows,
)
from oso_dp.methods import State
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient
from oso_dp.study.identity import format_method_options

RATES = {"threshold_rate": 0.01, "learning_rate_rate": 0.002}


def stored(rates=RATES, method="online", **more) -> pd.DataFrame:
    text = None if rates is None else format_method_options(rates)
    run = {"run_id": "a", "dataset": "d", "method": method, "k": 9, "epsilon": 1.0, "seed": 0}
    return pd.DataFrame(
        [run | {"method_options": text, "threshold": 0.1, "learning_rate": 2.0} | more]
    )


def evaluated(steps, thresholds, rates, split="test") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run_id": "a",
            "step": steps,
            "split": split,
            "threshold": thresholds,
            "learning_rate": rates,
        }
    )


def test_count_adaptation_signs_matches_known_signs() -> None:
    """The counts match the known signs of the answers that Online receives."""
    signs = np.random.default_rng(3).choice([-1, 1], (150, 2), p=[0.3, 0.7])
    state = State(
        parameters=torch.zeros(1, 2),
        learning_rate=torch.tensor([2.0]),
        threshold=torch.tensor([0.1]),
        quantile=torch.full((1,), math.nan),
        noise_multiplier=1.0,
        batch_size=1,
    )
    online, kept = make("online", 0.9, **RATES), []
    answer = torch.tensor([[1.0, 0.0]])
    for step, (up_c, up_rho) in enumerate(signs, start=1):
        if step > 1:  # what is remembered of the step before decides the signs
            state.buffers["direction"] = float(up_c) * answer
            state.buffers["gradient"] = float(up_rho) * answer
        online.update(state, {ClippedGradient: answer, ClippedDirection: answer})
        if step in (50, 150):
            kept.append((step, float(state.threshold), float(state.learning_rate)))
    rows = count_adaptation_signs(stored(), evaluated(*zip(*kept, strict=True)))
    for column, value in enumerate(("threshold", "learning_rate")):
        mine = rows[rows["value"] == value]
        assert mine["moves"].to_list() == [49, 100]  # the first step moves nothing
        ups = [(signs[1:50, column] > 0).mean(), (signs[50:, column] > 0).mean()]
        assert mine["up"].to_list() == pytest.approx(ups, abs=1e-3)
        assert mine["net"].iloc[-1] == pytest.approx(signs[1:, column].sum(), abs=0.02)


def test_count_adaptation_signs_other_splits_ignored() -> None:
    one = evaluated([51], [0.1], [2.0])
    both = pd.concat([one, evaluated([51], [0.3], [9.0], "test_even")])
    assert count_adaptation_signs(stored(), both).equals(count_adaptation_signs(stored(), one))


def test_count_adaptation_signs_unknown_rates_omitted() -> None:
    rows = evaluated([51], [0.1], [2.0])
    assert count_adaptation_signs(stored(rates=None), rows).empty
    assert count_adaptation_signs(stored(method="online_additive"), rows).empty
    assert count_adaptation_signs(stored(), rows.assign(run_id="b")).empty
    frozen = count_adaptation_signs(stored(rates=RATES | {"threshold_rate": 0.0}), rows)
    assert set(frozen["value"]) == {"learning_rate"}


def test_coin_factor_covers_95_percent() -> None:
    coins = np.random.default_rng(0).choice([-1, 1], (4000, 400))
    walk = 0.01 * coins.sum(axis=1)
    outside = (np.abs(walk) > np.log(coin_factor(np.array([401]), 0.01)[0])).mean()
    assert outside == pytest.approx(0.05, abs=0.012)
    shares = (coins > 0).mean(axis=1)
    assert (np.abs(shares - 0.5) > coin_flip_fraction(400)).mean() == pytest.approx(0.05, abs=0.012)
    assert coin_factor(np.array([0, 1]), 0.01).tolist() == [1.0, 1.0]


def followed(gradient, true, z=0.0) -> pd.DataFrame:
    products = {"direction": gradient, "gradient": gradient}
    products |= {f"true_{name}": true for name in products}
    products |= {"direction_z": z, "gradient_z": z}
    steps = range(2, 2 + len(gradient))
    return pd.DataFrame({"dataset": "d", "run_id": "a", "step": steps} | products)


def test_sign_windows_alternating_signs_counted() -> None:
    turns = [0.5, -0.5] * 10
    (row,) = sign_windows(followed(turns, [-x for x in turns])).query("value == 'threshold'").iloc
    assert (row["up"], row["true_up"], row["turned"], row["right"]) == (0.5, 0.5, 1.0, 0.0)
    assert (row["first"], row["last"], row["expected_up"]) == (2, 21, 0.5)
    coins = np.random.default_rng(1).choice([-1.0, 1.0], 2000)
    table = sign_windows(followed(coins, np.ones(2000)), width=2001)
    assert table["turned"].to_list() == pytest.approx([0.5] * 2, abs=0.05)
    assert table["right"].to_list() == pytest.approx([0.5] * 2, abs=0.05)


def test_sign_windows_follows_evaluation_steps() -> None:
    rows = followed([0.1] * 49 + [-0.1] * 50, [0.1] * 99, z=-1.0)
    rho = sign_windows(rows).query("value == 'learning_rate'")
    assert rho[["first", "last"]].to_numpy().tolist() == [[2, 50], [51, 100]]
    assert rho["up"].to_list() == [1.0, 0.0]
    assert rho["turned"].to_list() == pytest.approx([0.0, 0.02])  # the one at the border
    assert rho["expected_up"].to_list() == pytest.approx([0.158655] * 2, abs=1e-5)


def test_sign_windows_zero_products_not_up() -> None:
    zero = sign_windows(followed([0.0, math.nan], [math.nan, 0.0]))
    assert zero["up"].to_list() == [0.0, 0.0]
    assert zero["true_up"].to_list() == [0.0, 0.0]
    assert zero["right"].to_list() == [1.0, 1.0]


@pytest.mark.parametrize(("seen", "true"), [(0.0, -0.5), (-0.5, 0.0), (math.nan, -0.5)])
def test_sign_windows_zero_differs_from_negative(seen: float, true: float) -> None:
    """A product of 0 or NaN does not have the sign of a negative product."""
    assert sign_windows(followed([seen], [true]))["right"].to_list() == [0.0, 0.0]
