"""A large Linear layer's sums where no example is in two of them: the same as by autograd."""

import pytest
import torch
from torch import Tensor, nn

from oso_dp.gradients import linear
from oso_dp.gradients.linear import LinearGradients

OUT, IN, EXAMPLES = 32, 1100, 48  # as large as is worth it


def rule_of(values: tuple[Tensor, Tensor], part: slice = slice(None)) -> LinearGradients:
    inputs, errors = (rows[:, part].flatten(0, 1) for rows in values)
    return LinearGradients(nn.Linear(IN, OUT), inputs, errors)


def expected(values: tuple[Tensor, Tensor], weights: Tensor) -> dict[str, Tensor]:
    inputs, errors = (rows.double() for rows in values)
    return {
        "weight": torch.einsum("rjb,rbo,rbi->rjoi", weights.double(), errors, inputs),
        "bias": torch.einsum("rjb,rbo->rjo", weights.double(), errors),
    }


@pytest.fixture(params=[1, 3])
def values(request) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(request.param)
    shape = request.param, EXAMPLES
    return (
        torch.randn(*shape, IN, generator=generator),
        torch.randn(*shape, OUT, generator=generator),
    )


def apart_weights(runs: int, share: float) -> Tensor:
    """Two sums: of a share of the examples and of others; some are in none. Some are small."""
    generator = torch.Generator().manual_seed(7)
    sizes = 10 ** torch.empty(runs, EXAMPLES).uniform_(-6, 1, generator=generator)
    first = torch.rand(runs, EXAMPLES, generator=generator) < share
    none = torch.rand(runs, EXAMPLES, generator=generator) < 0.1
    zero = torch.zeros(())
    parts = [torch.where(side & ~none, sizes, zero) for side in (first, ~first)]
    return torch.stack(parts, dim=1)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_each_sum_is_of_its_own_examples(values, share: float) -> None:
    weights = apart_weights(len(values[0]), share)
    assert linear.are_disjoint(weights)
    sums = rule_of(values).weighted_sums(weights)
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(sums[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_chunks_add_up(values) -> None:
    weights = apart_weights(len(values[0]), 0.5)
    places = [slice(0, 16), slice(16, 32), slice(32, EXAMPLES)]
    onto = None
    for place in places:
        onto = rule_of(values, place).weighted_sums(weights[..., place], onto)
    assert onto is not None
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(onto[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_a_shared_example_is_in_both_sums(values) -> None:
    weights = apart_weights(len(values[0]), 0.5)
    weights[0, :, 5] = 0.3
    assert not linear.are_disjoint(weights)
    sums = rule_of(values).weighted_sums(weights)
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(sums[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_and_has_no_weight_stays_out(values) -> None:
    weights = apart_weights(len(values[0]), 0.5)
    weights[:, :, 3] = 0.0
    clean = rule_of(values).weighted_sums(weights)
    values[0][:, 3], values[1][:, 3] = torch.inf, torch.nan
    rule = rule_of(values)
    bad = torch.zeros(weights.shape[0], EXAMPLES, dtype=torch.bool)
    bad[:, 3] = True
    rule.drop(bad.flatten())
    for name, found in rule.weighted_sums(weights).items():
        torch.testing.assert_close(found, clean[name])
