"""Canaries do to each sum exactly what the auditor takes for granted."""

import numpy as np
import pytest
import torch
from tests.privacy.helpers import sums_of_one

from oso_dp.audit.canaries import THRESHOLD, Canaries, lone_canary, many_canaries
from oso_dp.audit.observer import FOOTPRINTS
from oso_dp.gradients import GradientEngine
from oso_dp.models import build_model, parameter_count
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount

C = torch.tensor([THRESHOLD])
QUERIES = [ClippedGradient(1.0, C), ClippedDirection(1.0, C), UnclippedCount(1.0, C)]


@pytest.fixture(scope="module")
def many() -> Canaries:
    return many_canaries(0)


def sums_over(canaries: Canaries, rows: np.ndarray, scale: float = 0.0) -> list[torch.Tensor]:
    """The exact sums over these rows, at parameters of this size."""
    model = build_model("linear")
    generator = torch.Generator().manual_seed(0)
    parameters = scale * torch.randn(parameter_count(model), generator=generator)
    inputs, targets = canaries.arrays.train_inputs[rows], canaries.arrays.train_targets[rows]
    code = GradientEngine(model, cross_entropy)
    batch = code(parameters[None], torch.from_numpy(inputs)[None], torch.from_numpy(targets)[None])
    return sums_of_one(QUERIES, batch)


@pytest.mark.parametrize("scale", [0.0, 1e-3])
def test_a_canary_adds_its_footprint_along_its_direction(many: Canaries, scale: float) -> None:
    rows = np.flatnonzero(many.present)[[5, 80]] + many.columns.start
    gradient, direction, count = sums_over(many, rows, scale)
    for query, total in ((QUERIES[0], gradient), (QUERIES[1], direction)):
        footprint = FOOTPRINTS[query.name](C).item()
        expected = torch.zeros(2, total.numel() // 2)
        expected[0, rows], expected[1, rows] = -footprint / 2**0.5, footprint / 2**0.5
        torch.testing.assert_close(total.view(2, -1), expected, rtol=1e-5, atol=1e-6)
    assert count == 2 * FOOTPRINTS["unclipped_count"](C)


def test_no_example_could_do_more(many: Canaries) -> None:
    for query in QUERIES:
        assert abs(FOOTPRINTS[query.name](C).item()) == float(query.sensitivity(slice(0, 1)))


def test_an_absent_canary_adds_nothing(many: Canaries) -> None:
    present = np.arange(many.columns.start + 50)[np.r_[np.ones(96, bool), many.present[:50]]]
    everyone = np.arange(many.columns.start + 50)
    assert len(present) < len(everyone)
    for without, with_gaps in zip(sums_over(many, present), sums_over(many, everyone), strict=True):
        torch.testing.assert_close(without, with_gaps, rtol=1e-5, atol=1e-5)
    for total in sums_over(lone_canary(False, 8), np.arange(8)):
        assert not total.any()


def test_ordinary_examples_leave_the_canaries_columns_alone(many: Canaries) -> None:
    gradient, _, count = sums_over(many, np.arange(96))
    assert not gradient.view(2, -1)[:, many.columns].any()
    assert gradient.any()
    assert abs(count) < 48  # some are clipped and some are not


def test_half_of_the_canaries_are_present_and_the_seed_says_which(many: Canaries) -> None:
    assert len(many.present) == 4000
    assert abs(many.present.mean() - 0.5) < 0.03
    other = many_canaries(1).present
    assert 0.4 < (other == many.present).mean() < 0.6
