"""However many parameters a model has, each counts in the norm and the sums."""

import math

import pytest
import torch

from oso_dp.opacus.per_sample_gradients import Dense, LinearFactors, PerSampleGradients

CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [1, 9, 70, 300])
def test_every_parameter_is_measured_and_summed(count: int) -> None:
    """Whole gradients and factors in turn; one that no example reached is nothing."""
    torch.manual_seed(0)
    held: list = []
    for number in range(count):
        if number % 2:
            inputs, outputs = torch.randn(4, 1, 2).double(), torch.randn(4, 1, 3).double()
            held.append(LinearFactors(inputs, outputs))
        else:
            held.append(Dense(torch.randn(4, 3, 2), torch.double))
    held.insert(count // 2, None)
    gradients = PerSampleGradients(held, [6] * (count + 1), torch.double, CPU)
    rows = gradients.weighted_sums(torch.eye(4).double()[None])[0]
    assert rows.shape == (4, 6 * (count + 1))
    assert rows.count_nonzero() == 4 * 6 * count
    torch.testing.assert_close(gradients.norms()[0], rows.norm(dim=1), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("place", ["first", "last"])
def test_an_example_that_is_no_number_in_one_parameter_is_dropped_in_all(count, place) -> None:
    torch.manual_seed(0)
    values = [torch.randn(4, 2) for _ in range(count)]
    values[0 if place == "first" else -1][2, 1] = math.nan
    gradients = PerSampleGradients(
        [Dense(v, torch.float) for v in values], [2] * count, torch.float, CPU
    )
    assert gradients.norms()[0].isinf().tolist() == [False, False, True, False]
    rows = gradients.weighted_sums(torch.eye(4)[None])[0]
    assert rows.isfinite().all()
    assert not rows[2].any()
