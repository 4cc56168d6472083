"""A large Linear layer's sums and norms: autograd's, and never below what rounding may leave."""

import pytest
import torch
from torch import Tensor, nn

from oso_dp.gradients import linear
from oso_dp.gradients.layer_gradients import norm_upper_bound
from oso_dp.gradients.linear import LinearGradients, SequenceFactors

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
def test_linear_gradients_disjoint_sums_match(values, share: float) -> None:
    weights = apart_weights(len(values[0]), share)
    assert linear.are_disjoint(weights)
    sums = rule_of(values).weighted_sums(weights)
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(sums[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_linear_gradients_chunks_add_up(values) -> None:
    weights = apart_weights(len(values[0]), 0.5)
    places = [slice(0, 16), slice(16, 32), slice(32, EXAMPLES)]
    onto = None
    for place in places:
        onto = rule_of(values, place).weighted_sums(weights[..., place], onto)
    assert onto is not None
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(onto[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_linear_gradients_overlapping_sums_match(values) -> None:
    weights = apart_weights(len(values[0]), 0.5)
    weights[0, :, 5] = 0.3
    assert not linear.are_disjoint(weights)
    sums = rule_of(values).weighted_sums(weights)
    for name, exact in expected(values, weights).items():
        torch.testing.assert_close(sums[name].double(), exact, rtol=1e-4, atol=1e-4)


def test_linear_gradients_nonfinite_example_dropped(values) -> None:
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


TERMS = [1, 2, 10, 1000]
ROUNDING = 2.0**-24  # of a float32 number, relatively


@pytest.mark.parametrize("length", [*TERMS, 10**6])
def test_norm_upper_bound_includes_sum_rounding(length: int) -> None:
    terms = torch.tensor([1e-20, 0.3, 1.0, 1e9], dtype=torch.float64)
    norms = norm_upper_bound(torch.zeros(4, dtype=torch.float64), terms, length, 1, torch.float32)
    assert (norms >= (length + 1) * ROUNDING * terms).all()
    whole = norm_upper_bound(terms**2, terms, length, 1, torch.float32)
    assert (whole >= terms * (1 + (length + 1) * ROUNDING * 0.999)).all()


@pytest.mark.parametrize("widths", [2, 10**9])
@pytest.mark.parametrize("length", [*TERMS, 10**6])
def test_norm_upper_bound_includes_measuring_error(length: int, widths: int) -> None:
    """The bound covers widths + length^2 float64 roundings, by which squares may be too small."""
    terms = torch.tensor([1e-9, 1.0, 1e9], dtype=torch.float64)
    for squares in (0 * terms, terms**2):
        norms = norm_upper_bound(squares, terms, length, widths, torch.float64)
        lost = (widths + length**2) * 2.0**-53 * terms**2
        assert (norms >= (squares + lost).sqrt() * (1 - 1e-12)).all()


@pytest.mark.parametrize("length", TERMS[1:])
@pytest.mark.parametrize("forms_kernels", [True, False])
def test_sequence_factors_cancelling_norm_includes_rounding(
    length: int, forms_kernels: bool
) -> None:
    inputs, errors = torch.ones(3, length, 1), torch.ones(3, length, 1)
    errors[:, 1::2] = -1.0
    rule = SequenceFactors(nn.Linear(1, 1, bias=False), inputs, errors)
    rule.forms_kernels = forms_kernels
    least = (2 * length + 1 if forms_kernels else length + 1) * ROUNDING * length
    assert (rule.norms() >= least * (1 - 1e-12)).all()
