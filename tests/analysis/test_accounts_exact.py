"""The accounts to the last digit, for every plan that is given."""

import math
from collections import defaultdict

import pandas as pd
import pytest
from tests.analysis.conftest import NINE, RATE, STEPS, grid, ledger, rows_of, two_plans
from tests.results.conftest import evaluation_row, run_row

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.base import full_run_ledger
from oso_dp.analysis.accounts import GridAccount, account_grids, check_budgets
from oso_dp.analysis.result_set import list_grids
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.collect import collect
from oso_dp.results.write import write_table
from oso_dp.study.calibration import calibrate_grids
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import make_plan, make_plan_with_noise


def two_entries(text: str) -> str:
    """The same steps, the first of them written apart."""
    whole = Ledger.from_json(text)
    ((queries, count),) = whole.steps
    return Ledger(whole.sampling, [(queries, 1), (queries, count - 1)]).to_json()


@pytest.mark.parametrize("share", [1e-2, 1e-4, 1e-6])
def test_check_budgets_slight_excess_rejected(share: float) -> None:
    spent = account_grids(grid())[0].spent
    check_budgets(account_grids(grid(epsilon=spent)))
    budget = spent * (1 - share)
    with pytest.raises(OsoError, match=r"its ledgers cost epsilon (\S+) at") as error:
        check_budgets(account_grids(grid(epsilon=budget)))
    said = float(str(error.value).split("cost epsilon ")[1].split()[0])
    assert said >= spent > budget  # rounded up: never as if it were within


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.02, 1.03, 1.04, 1.05])
def test_check_budgets_message_rounds_up(factor: float) -> None:
    nu = factor * grid()["noise_multiplier"].iloc[0]
    rows = grid(noise_multiplier=nu, ledger=ledger(nu=nu), epsilon=1.0)
    with pytest.raises(OsoError) as error:
        check_budgets(account_grids(rows))
    said = float(str(error.value).split("cost epsilon ")[1].split()[0])
    spent = account_grids(rows)[0].spent
    assert spent <= said < spent * 1.001


@pytest.mark.parametrize("share", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("sign", [1, -1])
def test_account_grids_other_rate_rejected(share: float, sign: int) -> None:
    """A ledger whose sampling rate is not batch_size / examples is rejected."""
    account_grids(grid(ledger=ledger(rate=RATE)))
    with pytest.raises(OsoError, match="its ledger has sampling rate"):
        account_grids(grid(ledger=ledger(rate=RATE * (1 + sign * share))))


@pytest.mark.parametrize("share", [1e-2, 1e-3, 1e-4, -1e-4, -0.5])
def test_account_grids_other_noise_rejected(share: float) -> None:
    nu = grid()["noise_multiplier"].iloc[0]
    with pytest.raises(OsoError, match="its ledger has noise multiplier"):
        account_grids(grid(noise_multiplier=nu * (1 + share)))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("which", [0, 1])
def test_account_grids_checks_all_plans(which: int, order: int, repo) -> None:
    plans = two_plans(repo, "a method's constant")[::order]
    rows = [rows_of(plan, NINE) for plan in plans]
    account_grids(pd.concat(rows, ignore_index=True), *plans)
    rows[which].loc[3, "delta"] = 1e-3
    with pytest.raises(OsoError, match=r"delta: 0\.001; must be 1e-05, as in the plan"):
        account_grids(pd.concat(rows, ignore_index=True), *plans)


@pytest.mark.parametrize("order", [1, -1])
def test_account_grids_takes_planned_sizes(order: int, repo) -> None:
    """Accounts and budgets take the size of each grid from its plan, in any order of plans."""
    smoke = load_config(repo / "config/ci/smoke.yaml").model_dump()
    plans = []
    for name, methods in (("one", ["online"]), ("two", ["fixed_quantile"])):
        # Fewer quantiles than the paper's: without the plan, the grid would be taken for larger.
        study = {**smoke, "methods": {m: {} for m in methods}, "values_per_axis": [1]}
        study["grid"] = {**smoke["grid"], "quantiles": [0.3, 0.7]}
        config = parse_config(study, name)
        plans.append(make_plan_with_noise(config, defaultdict(lambda: 5.0)))
    plans = plans[::order]
    budget = list_grids(plans)
    sizes = dict(zip(budget["method"], budget["runs"], strict=True))
    assert sizes == {"online": 1, "fixed_quantile": 2}
    rows = []
    for plan in plans:
        (cohort,) = [c for c in plan.cohorts if c.is_private]
        rows.append(rows_of(plan, cohort.name).assign(method=cohort.method))
    found = account_grids(pd.concat(rows, ignore_index=True), *plans)
    assert {grid.method: grid.runs for grid in found} == sizes
    check_budgets(found)


KNOWN = {"query_noise_multiplier": 7.0, "momentum": 0.9}


@pytest.mark.parametrize(
    "other",
    [
        {"ledger": two_entries(run_row("one", **KNOWN)["ledger"])},
        # A row may say its second sum's noise to a millionth.
        {"query_noise_multiplier": 7.000003, "ledger": run_row("one", **KNOWN)["ledger"]},
        {"query_noise_multiplier": 9.0},
        {"noise_multiplier": 2.0},
        # Its last step is that in which it diverged.
        {"status": "diverged", "diverged_at": run_row("one")["steps"]},
        {"status": "diverged", "diverged_at": 3},
        {"learning_rate": 0.5},
        {"threshold": 0.2},
        {"quantile": 0.5},
        {"epsilon": 3.0},
        {"delta": 1e-6},
        {"delta": 1.0000001e-5},
        {"search_accounting": "random_stopping"},
        {"momentum": 0.1},
        {"batch_size": 100, "steps": 6000},
        {"dataset": "glyphs", "examples": 6000, "steps": 118},
        {"seed": 1},
        {"method": "adam_wosm"},
    ],
    ids=lambda other: "-".join(other),
)
def test_collect_conflicting_runs_rejected(other, tmp_path) -> None:
    """Two rows of one run_id with different values conflict, although each is valid alone."""
    for name, more in (("a", {}), ("b", other)):
        row = run_row("one", **{**KNOWN, **more})
        last = evaluation_row("one", step=row["diverged_at"] or row["steps"])
        write_table(tmp_path / name / "runs.parquet", "runs", [row])
        write_table(tmp_path / name / "evaluations.parquet", "evaluations", [last])
        collect([tmp_path / name], tmp_path / f"store of {name} alone")
    for order in ("ab", "ba"):
        with pytest.raises(OsoError, match="run one was measured twice with different outcomes"):
            collect([tmp_path / name for name in order], tmp_path / "store")
    assert not list((tmp_path / "store").glob("*.parquet"))


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("runs", [5, 9, 49])
def test_make_plan_rounds_noise_up(epsilon, runs, repo, monkeypatch) -> None:
    """A plan rounds the noise multiplier up to five decimals."""
    config = load_config(repo / "config/ci/smoke.yaml")
    exact = Search(PoissonSampling(1.0), 10, runs).noise_multiplier(epsilon, 1e-5)
    monkeypatch.setattr(Search, "noise_multiplier", lambda *_: exact)
    assert calibrate_grids(config)[0].noise_multiplier == exact
    for cohort in make_plan(config).cohorts:
        nu = cohort.noise_multiplier
        assert exact <= nu <= exact + 1.001e-5 if cohort.is_private else nu == 0


@pytest.mark.parametrize("place", [0, 1, 4])
def test_full_run_ledger_takes_least_noise(place: int) -> None:
    noise = [2.0, 3.0, 2.5, 4.0, 3.5]
    noise[place] = 1.0
    ledgers = [Ledger(PoissonSampling(RATE), [((SumQuery("g", nu),), 7)]) for nu in noise]
    assert full_run_ledger(ledgers, STEPS).releases() == [(1.0, STEPS)]


@pytest.mark.parametrize(("delta", "steps"), [(1e-13, 10), (1e-40, 10), (1e-6, 2_000_001)])
def test_grid_account_refused_prv_gives_nan(delta: float, steps: int) -> None:
    one = Ledger(PoissonSampling(1.0), [((SumQuery("g", 1e4),), steps)])
    grid = GridAccount("mnist", "online", 9, 3.0, delta, 1, 1, 1, 0.5, (one,))
    assert math.isnan(grid.spent_by("prv"))
    assert grid.spent_by("pld") <= grid.spent_by("rdp") < 1


@pytest.mark.parametrize("runs", [1, 9, 25])
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_grid_account_spent_matches_compute_epsilon(runs: int, accountant: str) -> None:
    one = Ledger(PoissonSampling(1.0), [((SumQuery("g", 30.0),), 10)])
    grid = GridAccount("mnist", "online", 9, 3.0, 1e-6, runs, runs, 1, 0.5, (one,) * runs)
    whole = Ledger(PoissonSampling(1.0), [((SumQuery("g", 30.0),), 10 * runs)])
    assert grid.spent_by(accountant) == pytest.approx(compute_epsilon([whole], 1e-6, accountant))
