"""`search_accounting: single`: every point of a grid is a run that spends the whole budget "
"alone."""

import pytest

from oso_dp.accounting.tuning_cost import Search
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import make_plan

STUDY = {
    "name": "test",
    "datasets": {"mnist": {"model": "cnn", "epsilons": [3, 9], "seconds_per_step": 1}},
    "methods": {"online": {}, "fixed_threshold": {}, "no_dp": {}},
    "values_per_axis": [5, 9],
    "seeds": [0, 1],
}
ALONE = {**STUDY, "search_accounting": "single"}
# RDP's, as an independent computation of one subsampled Gaussian training has it.
NOISE = {3.0: 0.837, 9.0: 0.580}


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_config(ALONE, "x"))


def test_each_run_is_priced_as_a_search_of_one(plan) -> None:
    private = [cohort for cohort in plan.cohorts if cohort.is_private]
    assert len(private) == 8
    for cohort in private:
        assert cohort.noise_multiplier == pytest.approx(NOISE[cohort.epsilon], rel=0.0015)
        assert cohort.grid_runs == cohort.budgeted_runs == 1
        assert len(cohort.points) == (cohort.k if cohort.method == "online" else cohort.k**2)
    check_budget(private)


@pytest.mark.parametrize("ks", [[5, 9], [1]])  # k = 1 pays for one run either way
def test_its_runs_are_none_of_a_searchs_but_those_without_privacy(ks) -> None:
    alone, searched = (
        make_cohorts(parse_config({**study, "values_per_axis": ks}, "x"))
        for study in (ALONE, STUDY)
    )
    for one, other in zip(alone, searched, strict=True):
        assert one.points == other.points
        assert (one.runs == other.runs) == (one.name == other.name) == (not one.is_private)
        if one.is_private:
            assert not {run.run_id for run in one.runs} & {run.run_id for run in other.runs}
            assert one.name == f"{other.name}.single"
            assert one.stopping_distribution is None


def test_a_search_of_several_is_no_single_run() -> None:
    sampling = PoissonSampling(512 / 60000)
    alone, composed = (Search(sampling, 1172, 1, way) for way in ("single", "composition"))
    assert alone.noise_multiplier(3.0, 1e-5) == composed.noise_multiplier(3.0, 1e-5)
    with pytest.raises(OsoError, match="runs: 2; must be 1"):
        Search(sampling, 1172, 2, "single")
