"""Norms where terms may cancel: never below what rounding may leave of a sum of so many terms."""

import pytest
import torch
from torch import nn

from oso_dp.gradients.layer_gradients import norm_upper_bound
from oso_dp.gradients.linear import SequenceFactors

TERMS = [1, 2, 10, 1000]
ROUNDING = 2.0**-24  # of a float32 number, relatively


@pytest.mark.parametrize("length", [*TERMS, 10**6])
def test_what_nothing_is_left_of_is_as_long_as_rounding_may_leave(length: int) -> None:
    terms = torch.tensor([1e-20, 0.3, 1.0, 1e9], dtype=torch.float64)
    norms = norm_upper_bound(torch.zeros(4, dtype=torch.float64), terms, length, 1, torch.float32)
    assert (norms >= (length + 1) * ROUNDING * terms).all()
    whole = norm_upper_bound(terms**2, terms, length, 1, torch.float32)
    assert (whole >= terms * (1 + (length + 1) * ROUNDING * 0.999)).all()


@pytest.mark.parametrize("widths", [2, 10**9])
@pytest.mark.parametrize("length", [*TERMS, 10**6])
def test_what_measuring_may_be_off_by_is_added(length: int, widths: int) -> None:
    """T^2 products of float64 sums: squares may come out too small by so many roundings."""
    terms = torch.tensor([1e-9, 1.0, 1e9], dtype=torch.float64)
    for squares in (0 * terms, terms**2):
        norms = norm_upper_bound(squares, terms, length, widths, torch.float64)
        lost = (widths + length**2) * 2.0**-53 * terms**2
        assert (norms >= (squares + lost).sqrt() * (1 - 1e-12)).all()


@pytest.mark.parametrize("length", TERMS[1:])
def test_a_sequence_whose_places_cancel_is_as_long_as_rounding_may_leave(length: int) -> None:
    inputs, errors = torch.ones(3, length, 1), torch.ones(3, length, 1)
    errors[:, 1::2] = -1.0
    norms = SequenceFactors(nn.Linear(1, 1, bias=False), inputs, errors).norms()
    assert (norms >= (length + 1) * ROUNDING * length).all()
