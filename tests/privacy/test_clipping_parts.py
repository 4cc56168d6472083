"""Queries that share their parts: the sums are those of the weights that each query states."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.helpers import Given
from torch import Tensor

from oso_dp.privacy.mechanism import unnoised_sums
from oso_dp.privacy.queries import AutomaticGradient, ClippedDirection, ClippedGradient, Query

RUNS, EXAMPLES, SIZE = 3, 40, 7
ALL = slice(0, RUNS)


class Counted(Given):
    """Gradients that know how many sums were asked for at a time."""

    def weighted_sums(self, weights: Tensor, layers: None = None) -> Tensor:
        self.asked = weights
        return super().weighted_sums(weights, layers)


def gradients(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    lengths = 10 ** torch.empty(RUNS, EXAMPLES, 1).uniform_(-4, 4, generator=generator)
    values = torch.randn(RUNS, EXAMPLES, SIZE, generator=generator) * lengths
    values[:, 0] = 0.0
    return values


def by_definition(query: Query, rows: Tensor, present: Tensor) -> Tensor:
    """float64, one example after the other."""
    total = torch.zeros(RUNS, SIZE, dtype=torch.float64)
    for run in range(RUNS):
        threshold = float(query.threshold[run])
        for example in range(EXAMPLES):
            gradient = rows[run, example].double()
            norm = float(torch.linalg.vector_norm(gradient))
            clipped = norm > threshold
            if not present[run, example]:
                continue
            if isinstance(query, ClippedGradient):
                total[run] += gradient * (threshold / norm if clipped else 1.0)
            elif clipped:
                total[run] += gradient / norm
    return total


@given(seed=st.integers(0, 10**6), exponent=st.floats(-3, 3), microbatch_size=st.booleans())
def test_sums_are_those_of_the_definition(
    seed: int, exponent: float, microbatch_size: bool
) -> None:
    rows = gradients(seed)
    thresholds = 10**exponent * torch.tensor([1.0, 0.1, 30.0])
    queries = [ClippedGradient(1.0, thresholds), ClippedDirection(1.0, thresholds)]
    if microbatch_size:
        queries.reverse()
    present = torch.rand(RUNS, EXAMPLES, generator=torch.Generator().manual_seed(seed)) < 0.8
    sums = unnoised_sums(queries, ALL, Counted(rows), present)
    for query, found in zip(queries, sums, strict=True):
        expected = by_definition(query, rows, present)
        scale = query.sensitivity(ALL) * torch.ones(RUNS)
        assert ((found - expected).norm(dim=1) <= 1e-5 * EXAMPLES * scale).all()


@pytest.mark.parametrize("norm", [1.0, 1.0 + 2**-23, 1.0 - 2**-24, 5.0, 0.0])
def test_an_example_is_in_one_part_only(norm: float) -> None:
    """At the threshold, too, where both weights are 1."""
    rows = torch.zeros(RUNS, 1, SIZE)
    rows[..., 0] = norm
    threshold = torch.ones(RUNS)
    given_rows = Counted(rows)
    queries = [ClippedGradient(1.0, threshold), ClippedDirection(1.0, threshold)]
    clipped, direction = unnoised_sums(
        queries, ALL, given_rows, torch.ones(RUNS, 1, dtype=torch.bool)
    )
    assert (given_rows.asked.count_nonzero(dim=1) == 1).all()
    assert torch.allclose(clipped[:, 0], torch.tensor(min(norm, 1.0)), rtol=1e-6)
    assert torch.allclose(direction[:, 0], torch.tensor(float(norm > 1.0)), rtol=1e-6)


def test_two_thresholds_have_parts_of_their_own() -> None:
    rows, present = gradients(3), torch.ones(RUNS, EXAMPLES, dtype=torch.bool)
    queries = [
        ClippedGradient(1.0, torch.full((RUNS,), 0.5)),
        ClippedDirection(1.0, torch.full((RUNS,), 20.0)),
    ]
    for query, found in zip(
        queries, unnoised_sums(queries, ALL, Counted(rows), present), strict=True
    ):
        torch.testing.assert_close(
            found.double(), by_definition(query, rows, present), rtol=1e-4, atol=1e-4
        )


def test_other_weights_share_nothing() -> None:
    rows, present = gradients(4), torch.ones(RUNS, EXAMPLES, dtype=torch.bool)
    threshold = torch.ones(RUNS)
    queries = [AutomaticGradient(1.0, threshold), ClippedDirection(1.0, threshold)]
    automatic, direction = unnoised_sums(queries, ALL, Counted(rows), present)
    (alone,) = unnoised_sums(queries[:1], ALL, Counted(rows), present)
    torch.testing.assert_close(automatic, alone, rtol=1e-5, atol=1e-5)
    expected = by_definition(queries[1], rows, present)
    torch.testing.assert_close(direction.double(), expected, rtol=1e-4, atol=1e-4)
