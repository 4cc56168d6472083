"""Every grid of a study, and every run that is a guess, priced under any rule."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.searches import make_search

from oso_dp.accounting.search import Search
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import calibrate_grids, check_budget
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import make_plan


def test_calibrate_grids_random_stopping_k1_raises(base) -> None:
    base.update(values_per_axis=[1], search_accounting="random_stopping")
    with pytest.raises(OsoError, match=r"mnist\.online\.k1\.eps3.*: runs: 1; must be > 1"):
        calibrate_grids(parse_config(base, "x"))


@pytest.mark.parametrize("order", [1, -1])
def test_calibrate_grids_datasets_priced_separately(order) -> None:
    """Each data set is priced at its own sampling rate (1 and 0.1) and number of steps."""
    sets = {
        "glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1},
        "mnist": {"model": "cnn", "epsilons": [3], "seconds_per_step": 1},
    }
    study = {
        **{"name": "test", "datasets": dict([*sets.items()][::order]), "methods": {"online": {}}},
        **{"values_per_axis": [2, 5], "seeds": [0], "batch_size": 6000, "epochs": 3},
    }
    grids = calibrate_grids(parse_config(study, "x"))
    assert len(grids) == 4
    for grid in grids:
        examples = {"glyphs": 6000, "mnist": 60_000}[grid.cohort.dataset]
        own = Search(PoissonSampling(6000 / examples), 3 * examples // 6000, grid.cohort.k)
        spent = own.epsilon(grid.noise_multiplier, 1e-5)
        assert grid.cohort.epsilon * (1 - 1e-6) < spent <= grid.cohort.epsilon


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("way", ["composition", "single", "linear_scaling"])
def test_calibrate_grids_uses_given_accountant(base, way, accountant, monkeypatch) -> None:
    asked = []

    def answer(self, epsilon, delta, by="rdp", tolerance=None) -> float:
        asked.append(by)
        return 5.0

    monkeypatch.setattr(Search, "noise_multiplier", answer)
    study = {"methods": {"online": {}, "fixed_threshold": {}}, "values_per_axis": [2]}
    # At a delta that no other test asks about: what a search costs is kept.
    study |= {"search_accounting": way, "delta": 1.2345e-5}
    grids = calibrate_grids(parse_config(base | study, "x"), accountant)
    assert len(grids) == 4 * (3 if way == "linear_scaling" else 1)
    assert set(asked) == {accountant}


WAYS = ("composition", "random_stopping", "single", "linear_scaling")


@pytest.mark.parametrize("asked", WAYS)
@pytest.mark.parametrize("own", WAYS)
def test_calibrate_grids_search_accounting_overrides_config(own, asked) -> None:
    section = {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}
    study = {
        **{"name": "test", "datasets": {"glyphs": section}, "seeds": [0], "batch_size": 6000},
        **{"methods": {"online": {}, "fixed_threshold": {}}, "values_per_axis": [3], "epochs": 5},
    }
    priced, expected = (
        [
            (
                grid.cohort.method,
                grid.cohort.stage,
                grid.cohort.budgeted_runs,
                grid.noise_multiplier,
            )
            for grid in calibrate_grids(
                parse_config({**study, "search_accounting": way}, "x"), **how
            )
        ]
        for way, how in ((own, {"search_accounting": asked}), (asked, {}))
    )
    assert priced == expected
    assert {runs for _, _, runs, _ in priced} == ({1} if asked == "single" else {3, 9})


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


def test_make_plan_single_noise_matches_reference(plan) -> None:
    private = [cohort for cohort in plan.cohorts if cohort.is_private]
    assert len(private) == 8
    for cohort in private:
        assert cohort.noise_multiplier == pytest.approx(NOISE[cohort.epsilon], rel=0.0015)
        assert cohort.grid_runs == cohort.budgeted_runs == 1
        assert len(cohort.points) == (cohort.k if cohort.method == "online" else cohort.k**2)
    check_budget(private)


@pytest.mark.parametrize("ks", [[5, 9], [1]])  # k = 1 pays for one run either way
def test_make_cohorts_single_private_runs_differ(ks) -> None:
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


def test_search_accounting_single_two_runs_raises() -> None:
    sampling = PoissonSampling(512 / 60000)
    alone, composed = (make_search(sampling, 1172, 1, way) for way in ("single", "composition"))
    assert alone.noise_multiplier(3.0, 1e-5) == composed.noise_multiplier(3.0, 1e-5)
    with pytest.raises(OsoError, match="runs: 2; must be 1"):
        make_search(sampling, 1172, 2, "single")


TWICE = """
from oso_dp.accounting.search_accounting.composition import Composition

class Twice(Composition):
    name = "twice"
    label = "the grid, two times"
    summary = "every run is charged two times"

    def planned_runs(self, grid_size):
        return 2 * grid_size
"""
PLAN = """
import sys
from pathlib import Path
from oso_dp.accounting import search_accounting
search_accounting.__path__.append(sys.argv[1])
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan
study = load_config(Path(sys.argv[2]))
for cohort in make_plan(study).cohorts:
    assert cohort.search_accounting == ("twice" if cohort.is_private else "composition")
    if cohort.is_private:
        print(cohort.name, cohort.noise_multiplier)
"""


def test_search_accounting_new_module_discovered(repo: Path, tmp_path: Path) -> None:
    """A plan uses the search accounting of the new module `twice.py`, in a process of its own."""
    (tmp_path / "twice.py").write_text(TWICE)
    smoke = (repo / "config/ci/smoke.yaml").read_text()
    (tmp_path / "study.yaml").write_text(f"{smoke}search_accounting: twice\n")
    call = [sys.executable, "-c", PLAN, str(tmp_path), str(tmp_path / "study.yaml")]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    found = dict(line.split() for line in done.stdout.splitlines())
    (usual, *_) = (one for one in make_plan(load_config(repo / "config/ci/smoke.yaml")).cohorts)
    search = Search(usual.sampling, usual.steps, 2 * usual.grid_runs)
    nu = search.noise_multiplier(usual.epsilon, usual.delta)
    assert float(found[f"{usual.name}.twice"]) == pytest.approx(nu, abs=1e-5)
