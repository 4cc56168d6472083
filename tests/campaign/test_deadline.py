"""A group is stopped once it is plain that it ends too late, and not before."""

import pytest

from oso_dp.campaign.deadline import PATIENCE, SETTLED, SLACK, Deadline, OutOfTimeError

STEPS = 1000


def stopped_at(
    per_step: float,
    deadline: float,
    began: int = 0,
    first: float = 0.0,
    early: float = 1.0,
    steps: int = 100,
) -> int | None:
    """The step at which a group of this speed is stopped; None if it is left alone.

    began: the step that it goes on from; first: seconds of the first step, beyond the others';
    early: by what factor the first `steps` steps are slower.
    """
    now = [100.0]
    watch = Deadline(STEPS, 100.0 + deadline, lambda: now[0])
    now[0] += first
    for step in range(began + 1, STEPS + 1):
        now[0] += per_step * (early if step <= steps else 1)
        try:
            watch(0, step)
        except OutOfTimeError:
            return step
    assert watch.step == STEPS
    in_the_mean = per_step * (1 + (early - 1) * steps / STEPS)
    assert watch.per_step == pytest.approx(in_the_mean, rel=0.02)
    return None


@pytest.mark.parametrize("per_step", [0.004, 0.3, 7.0])
@pytest.mark.parametrize("began", [0, 500, 990])
def test_what_ends_in_time_is_left_alone(per_step: float, began: int) -> None:
    assert stopped_at(per_step, (STEPS - began) * per_step * 1.001, began) is None


@pytest.mark.parametrize("per_step", [0.02, 0.3])
def test_a_start_may_be_slower_than_the_rest_by_the_slack(per_step: float) -> None:
    for early, left_alone in ((SLACK, True), (SLACK + 0.1, False)):
        ends = per_step * (STEPS + 100 * (early - 1))
        assert (stopped_at(per_step, ends * 1.001, early=early) is None) == left_alone


@pytest.mark.parametrize("per_step", [0.004, 0.3, 7.0])
@pytest.mark.parametrize("began", [0, 500])
def test_what_ends_far_too_late_is_stopped_as_soon_as_its_speed_is_known(per_step, began) -> None:
    time = (STEPS - began) * per_step * 0.6
    at = stopped_at(per_step, time, began)
    settled = began + 1 + max(1, SETTLED / per_step, PATIENCE * time / per_step)
    assert at is not None
    assert settled - 1 <= at <= settled + 2


def test_a_slow_first_step_says_nothing_of_the_others() -> None:
    assert stopped_at(0.1, 125.0, first=20.0) is None


def test_a_minute_in_which_the_machine_is_busy_says_nothing_of_hours() -> None:
    """Three hours are left, and the first two minutes' steps take seven times as long."""
    assert stopped_at(2.0, 10_500.0, early=7, steps=10) is None
    assert stopped_at(14.0, 10_500.0) is not None


def test_the_deadline_itself_stops_whatever_is_not_done() -> None:
    watch = Deadline(STEPS, 10.0, lambda: 10.5)
    with pytest.raises(OutOfTimeError):
        watch(0, 3)
    Deadline(STEPS, 10.0, lambda: 10.5)(0, STEPS)
