"""The order of work: the paper's best hyperparameters, then whole grids, each by what it costs."""

from dataclasses import replace

import pytest

from oso_dp.campaign.order import all_work, portions
from oso_dp.campaign.speed import Speed
from oso_dp.errors import OsoError
from oso_dp.study.paper_points import papers_best_runs


@pytest.fixture
def speed(mnist) -> Speed:
    return Speed(mnist.seconds_per_step)


def test_first_the_papers_best_of_every_cohort(mnist, speed) -> None:
    best = {run_id for cohort in mnist.cohorts for run_id in papers_best_runs(cohort)}
    found = portions(all_work([mnist]), best, (), speed)
    first = found[: -len(mnist.cohorts)]
    assert {run.run_id for each in first for run in each.runs} == best
    assert [each.work.cohort.name for each in first if len(each.runs) != 5] == []
    tables = {(each.work.cohort.dataset, each.work.cohort.k) for each in first}
    assert tables == {(each.dataset, each.k) for each in mnist.cohorts}


def test_then_whole_grids_the_smallest_first(mnist, speed) -> None:
    sizes = [len(each.runs) for each in portions(all_work([mnist]), (), (), speed)]
    assert sizes == sorted(len(cohort.runs) for cohort in mnist.cohorts)
    assert (sizes[0], sizes[-1]) == (25, 405)


def test_what_is_done_is_not_there(mnist, speed) -> None:
    done = {run.run_id for run in mnist.cohorts[0].runs} | {mnist.cohorts[1].runs[3].run_id}
    found = {
        each.work.cohort.name: each.runs for each in portions(all_work([mnist]), (), done, speed)
    }
    assert mnist.cohorts[0].name not in found
    assert len(found[mnist.cohorts[1].name]) == len(mnist.cohorts[1].runs) - 1


def test_measured_speeds_change_the_order(mnist, speed) -> None:
    """A method that turns out to be slow goes behind a larger grid of a quick one."""
    slow = next(cohort for cohort in mnist.cohorts if cohort.method == "online")
    quick = next(cohort for cohort in mnist.cohorts if cohort.method == "fixed_threshold")
    speed.note(slow, 10, 10.0)
    speed.note(quick, 10, 0.1)
    methods = [each.work.cohort.method for each in portions(all_work([mnist]), (), (), speed)]
    last_quick = len(methods) - methods[::-1].index("fixed_threshold")
    assert methods.index("online") >= last_quick


def test_patterns(mnist) -> None:
    names = {"online/mnist": 12, "*/mnist": 51, "fixed_*/*": 24, "no_dp/mnist": 3}
    for pattern, count in names.items():
        assert len(all_work([mnist], [pattern])) == count
    assert len(all_work([mnist], ["online/*", "no_dp/*", "online/mnist"])) == 15
    assert tuple(work.cohort for work in all_work([mnist])) == mnist.cohorts


@pytest.mark.parametrize("pattern", ["online", "mnist/online", "online/ag_news", ""])
def test_a_pattern_without_a_cohort_is_refused(mnist, pattern) -> None:
    with pytest.raises(OsoError, match=r"--only .*: names nothing in the plan, .* online/mnist"):
        all_work([mnist], ["*/*", pattern])


def test_a_run_of_two_plans_is_there_once(mnist) -> None:
    """As the spot check's are the paper's, too."""
    first = replace(mnist, cohorts=mnist.cohorts[:2])
    both = all_work([first, mnist])
    run_ids = [run.run_id for work in both for run in work.cohort.runs]
    assert sorted(run_ids) == sorted(run.run_id for each in mnist.cohorts for run in each.runs)
    assert [work.plan is first for work in both] == [True] * 2 + [False] * 51


def test_speeds_are_taken_from_what_is_most_alike(mnist) -> None:
    one, other = mnist.cohorts[0], next(c for c in mnist.cohorts if c.method == "no_dp")
    speed = Speed({"mnist": 0.4})
    assert speed.group_seconds(one, 8) is None  # nothing measured: no promise
    assert speed.run_seconds(one) == pytest.approx(0.4 * 1172)  # but a guess for the order
    speed.note(one, 8, 0.8)
    speed.note(one, 64, 3.2)
    assert speed.group_seconds(one, 8) == pytest.approx(0.8 * 1172)
    assert speed.group_seconds(one, 16) == pytest.approx(1.6 * 1172)
    assert speed.group_seconds(one, 32) == pytest.approx(1.6 * 1172)
    assert speed.run_seconds(one) == pytest.approx(0.05 * 1172)  # of the largest group
    assert speed.group_seconds(other, 64) == pytest.approx(3.2 * 1172)  # the same data set
    assert speed.run_seconds(other) == pytest.approx(0.05 * 1172)
    speed.note(other, 64, 1.6)
    assert speed.run_seconds(other) == pytest.approx(0.025 * 1172)
    assert speed.run_seconds(one) == pytest.approx(0.05 * 1172)


@pytest.mark.parametrize("turned", [False, True])
def test_what_was_not_measured_is_as_slow_as_the_slowest_on_its_data(mnist, turned) -> None:
    methods = ("online", "no_dp", "adam_wosm", "fixed_threshold")
    *measured, other = (next(c for c in mnist.cohorts if c.method == name) for name in methods)
    speed = Speed({"mnist": 0.4})
    for cohort, seconds in sorted(
        zip(measured, (0.2, 0.5, 0.3), strict=True), key=lambda pair: pair[1], reverse=turned
    ):
        speed.note(cohort, 4, seconds)
    assert speed.group_seconds(other, 4) == pytest.approx(0.5 * 1172)
    assert speed.run_seconds(other) == pytest.approx(0.5 / 4 * 1172)


def test_planned_proportions_are_those_of_all_that_was_measured(mnist) -> None:
    """In the mean: of three data sets one is as fast as planned, and one four times as fast."""
    one = mnist.cohorts[0]
    names = ("mnist", "fashion_mnist", "ag_news")
    speed = Speed(dict(zip(names, (0.4, 0.8, 0.2), strict=True)))
    for name, seconds in (("mnist", 0.4), ("ag_news", 0.05)):
        speed.note(replace(one, dataset=name), 1, seconds)
    another = replace(one, dataset="fashion_mnist")
    assert speed.run_seconds(another) == pytest.approx(0.8 * (1 + 0.25) / 2 * 1172)


def test_other_data_sets_are_guessed_by_their_planned_proportions(mnist) -> None:
    one = mnist.cohorts[0]
    another = replace(one, dataset="fashion_mnist")
    speed = Speed({"mnist": 0.4, "fashion_mnist": 0.8})
    speed.note(one, 10, 0.1)  # 40 times as fast as planned
    assert speed.run_seconds(another) == pytest.approx(0.02 * 1172)
    assert speed.group_seconds(another, 10) is None
