"""The order of work: the paper's best hyperparameters, then whole grids, each by what it costs."""

from dataclasses import replace

import pytest

from oso.campaign.order import portions, select
from oso.campaign.speed import Speed
from oso.errors import OsoError
from oso.study.plain import paper_best_runs, read_plain_plan


@pytest.fixture(scope="module")
def paper(repo):
    return read_plain_plan(repo / "results/plan.json")


@pytest.fixture
def speed(paper) -> Speed:
    datasets = paper.config.datasets
    return Speed({name: section.seconds_per_step for name, section in datasets.items()})


def test_first_the_papers_best_of_every_cohort(paper, speed) -> None:
    best = paper_best_runs(paper.config)
    found = portions(paper.cohorts, best, (), speed)
    first = found[: -len(paper.cohorts)]
    assert {run.run_id for each in first for run in each.runs} == best
    assert [each.cohort.name for each in first if len(each.runs) != 5] == []
    tables = {(each.cohort.dataset, each.cohort.k) for each in first}
    assert tables == {(each.dataset, each.k) for each in paper.cohorts}


def test_then_whole_grids_the_smallest_first(paper, speed) -> None:
    found = portions(paper.cohorts, (), (), speed)
    for dataset in paper.config.datasets:
        sizes = [len(each.runs) for each in found if each.cohort.dataset == dataset]
        assert (sizes, sizes[0], sizes[-1]) == (sorted(sizes), 25, 405)
    assert (found[0].cohort.dataset, found[-1].cohort.dataset) == ("ag_news", "fashion_mnist")
    assert len(found) == len(paper.cohorts)


def test_what_is_done_is_not_there(paper, speed) -> None:
    done = {run.run_id for run in paper.cohorts[0].runs} | {paper.cohorts[1].runs[3].run_id}
    found = {each.cohort.name: each.runs for each in portions(paper.cohorts, (), done, speed)}
    assert paper.cohorts[0].name not in found
    assert len(found[paper.cohorts[1].name]) == len(paper.cohorts[1].runs) - 1


def test_measured_speeds_change_the_order(paper, speed) -> None:
    """A method that turns out to be slow goes behind a larger grid of a quick one."""
    mnist = select(paper.cohorts, ["*/mnist"])
    slow = next(cohort for cohort in mnist if cohort.method == "online")
    quick = next(cohort for cohort in mnist if cohort.method == "fixed_threshold")
    speed.note(slow, 10, 10.0)
    speed.note(quick, 10, 0.1)
    methods = [each.cohort.method for each in portions(mnist, (), (), speed)]
    last_quick = len(methods) - methods[::-1].index("fixed_threshold")
    assert methods.index("online") >= last_quick


def test_patterns(paper) -> None:
    names = {"online/mnist": 12, "*/mnist": 51, "fixed_*/*": 72, "no_dp/mnist": 3}
    for pattern, count in names.items():
        assert len(select(paper.cohorts, [pattern])) == count
    assert len(select(paper.cohorts, ["online/*", "no_dp/*", "online/mnist"])) == 45
    assert select(paper.cohorts, []) == paper.cohorts


@pytest.mark.parametrize("pattern", ["online", "mnist/online", "online/ag_news_partial", ""])
def test_a_pattern_without_a_cohort_is_refused(paper, pattern) -> None:
    with pytest.raises(OsoError, match=r"--only .*: names nothing in the plan, .* online/mnist"):
        select(paper.cohorts, ["*/*", pattern])


def test_speeds_are_taken_from_what_is_most_alike(paper) -> None:
    one, other = paper.cohorts[0], next(c for c in paper.cohorts if c.method == "no_dp")
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


def test_other_data_sets_are_guessed_by_their_planned_proportions(paper) -> None:
    one = paper.cohorts[0]
    another = replace(one, dataset="fashion_mnist")
    speed = Speed({"mnist": 0.4, "fashion_mnist": 0.8})
    speed.note(one, 10, 0.1)  # 40 times as fast as planned
    assert speed.run_seconds(another) == pytest.approx(0.02 * 1172)
    assert speed.group_seconds(another, 10) is None
