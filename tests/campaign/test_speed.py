"""How long a run takes by what was measured: its share of the largest group, the last time."""

from dataclasses import replace
from itertools import permutations

import pytest

from oso_dp.campaign.speed import Speed

PLANNED = {"mnist": 0.4, "fashion_mnist": 1.0}
# Groups of several sizes, and what a step of one took; a run of a larger one takes less time.
GROUPS = {1: 1.0, 4: 2.0, 16: 3.2}


@pytest.fixture
def cohorts(mnist):
    """Online's on MNIST, and one as long on Fashion-MNIST."""
    one = next(cohort for cohort in mnist.cohorts if cohort.method == "online")
    return one, replace(one, dataset="fashion_mnist")


@pytest.mark.parametrize("order", [*permutations(GROUPS)])
def test_a_run_takes_its_share_of_the_largest_group(cohorts, order) -> None:
    """Also where it is the measure of other data, in proportion to what was planned."""
    speed, (measured, other) = Speed(PLANNED), cohorts
    for size in order:
        speed.note(measured, size, GROUPS[size])
    assert speed.run_seconds(measured) == pytest.approx(measured.steps * 3.2 / 16)
    expected = measured.steps * 3.2 / 16 * PLANNED["fashion_mnist"] / PLANNED["mnist"]
    assert speed.run_seconds(other) == pytest.approx(expected)


@pytest.mark.parametrize("times", [[1.0, 3.0], [3.0, 1.0], [1.0, 5.0, 2.0]])
def test_the_last_measurement_of_a_size_counts(cohorts, times) -> None:
    """The machine may be busier than it was, or no longer busy."""
    speed, (measured, _) = Speed(PLANNED), cohorts
    for per_step in times:
        speed.note(measured, 4, per_step)
    assert speed.group_seconds(measured, 4) == measured.steps * times[-1]
    assert speed.run_seconds(measured) == measured.steps * times[-1] / 4
