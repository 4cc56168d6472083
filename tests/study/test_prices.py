"""Every grid of a study priced under any rule, before it runs."""

import pytest

from oso.study.config import parse_config
from oso.study.plan import make_plan
from oso.study.prices import grid_prices


def test_the_plan_has_these_prices_rounded_up(base) -> None:
    config = parse_config(base, "x")
    plan = make_plan(config)
    prices = grid_prices(config)
    assert {price.cohort.name for price in prices} == {c.name for c in plan.cohorts if c.private}
    for price in prices:
        planned = plan.noise_multipliers[price.cohort.name]
        assert price.noise_multiplier <= planned < price.noise_multiplier + 1.01e-5


def test_random_stopping_brings_the_methods_prices_together(base) -> None:
    """81 candidates against 9: 2.7 times the noise under composition, about 1.2 at random."""
    base["granularities"] = [9]
    ratios = []
    for rule in ({}, {"selection": "random_stopping"}):
        prices = grid_prices(parse_config(base, "x"), **rule)
        noise = {(p.cohort.method, p.cohort.epsilon): p.noise_multiplier for p in prices}
        ratios.append(noise["fixed_threshold", 3] / noise["online", 3])
    assert ratios == pytest.approx([2.67, 1.16], abs=0.01)
