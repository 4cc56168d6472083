"""Places of an example whose gradients nearly cancel: what is left counts in full."""

import pytest
import torch

from oso_dp.opacus.per_sample_gradients import EmbeddingFactors, LinearFactors


@pytest.mark.parametrize("rest", [1e-2, 1e-4, 1e-5, 3e-6])
@pytest.mark.parametrize("kind", ["sequence", "text"])
def test_what_is_left_of_places_that_nearly_cancel_is_not_measured_too_small(kind, rest) -> None:
    """Squares in float32 are off by 2^-24 of all places' product, and their root by far more."""
    random = torch.Generator().manual_seed(0)
    places = torch.randn(200, 32, 20, generator=random)
    errors = torch.cat([places, -places], dim=1)
    errors[:, 0] += rest * 64 * torch.randn(200, 20, generator=random)
    if kind == "sequence":
        inputs = torch.randn(200, 1, 30, generator=random).repeat(1, 64, 1)
        held, exact = LinearFactors(inputs, errors), errors.double().mT @ inputs.double()
    else:
        words = torch.zeros(200, 64, dtype=torch.int64)
        held, exact = EmbeddingFactors(words, errors, 5, None), errors.double().sum(dim=1)
    assert (held.norms() >= exact.flatten(1).norm(dim=1)).all()
