"""Epsilon from the stored ledgers: every fault of a row that could hide a cost is seen."""

import json
import math
from collections import Counter

import pandas as pd
import pytest
from tests.analysis.conftest import (
    EPSILON,
    NU,
    RATE,
    STEPS,
    grid,
    ledger,
    rows_of,
)
from tests.stores import named

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting.base import full_run_ledger, pad_to_full_run
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA, RandomStoppingSearch
from oso_dp.analysis.accounts import (
    GridAccount,
    account_grids,
    accounts_table,
    check_budgets,
    most_expensive,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import make_plan


def test_account_grids_complete_grid_costs_budget() -> None:
    (found,) = account_grids(grid())
    assert found.name == "glyphs.online.k9.eps3"
    assert (found.runs, found.stored, found.seeds) == (9, 9, 1)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)
    assert found.is_within_budget
    check_budgets([found])


def test_account_grids_missing_runs_charged() -> None:
    """An account charges all nine runs of a grid of which one run is stored."""
    (found,) = account_grids(grid(rows=1))
    assert (found.runs, found.stored) == (9, 1)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("stored", [1, 2, 9])
@pytest.mark.parametrize("at", [1, 10, STEPS])
def test_account_grids_diverged_run_charged_whole(stored, at) -> None:
    """A diverged run is charged for all its steps: the step of divergence depends on the data."""
    rows = grid(rows=stored)
    rows.loc[0, ["status", "diverged_at", "ledger"]] = ["diverged", at, ledger(steps=at)]
    (found,) = account_grids(rows)
    assert [entry.step_count for entry in found.ledgers] == [STEPS] * 9
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("sizes", [(9, 9), (9, 12), (12, 9)])
def test_account_grids_costliest_seed_charged(sizes) -> None:
    rows = [grid(rows=size, seeds=(seed,)) for seed, size in enumerate(sizes)]
    (found,) = account_grids(pd.concat(rows, ignore_index=True))
    assert (found.seeds, found.runs) == (2, max(sizes))
    (alone,) = account_grids(grid(rows=max(sizes)))
    assert found.spent == alone.spent


def test_account_grids_extra_runs_charged() -> None:
    (found,) = account_grids(grid(rows=12))
    assert found.runs == 12
    assert not found.is_within_budget


@pytest.mark.parametrize(
    "fault",
    [
        {"ledger": ledger(nu=0.99 * NU), "noise_multiplier": 0.99 * NU},
        {"ledger": ledger(nu=1e-3), "noise_multiplier": 1e-3},
        {"epsilon": 2.9},
    ],
)
def test_check_budgets_exceeded_grid_rejected(fault) -> None:
    found = account_grids(grid(**fault))
    with pytest.raises(OsoError, match=r"glyphs\.online\.k\d+\.eps.*: its ledgers cost epsilon"):
        check_budgets(found)
    assert accounts_table(found)["pld"].isna().all()  # it would take hours where noise is little


def own_grid(repo, **more):
    """Rows of a study whose ranges and quantiles are not the paper's, with their options."""
    study = {
        **load_config(repo / "config/ci/smoke.yaml").model_dump(),
        "methods": {"fixed_quantile": {}},
        "grid": {"quantiles": [0.5]},
        **more,
    }
    plan = make_plan(parse_config(study, "x"))
    return rows_of(plan, plan.cohorts[0].name)


def test_account_grids_takes_size_from_options(repo) -> None:
    """With k = 2 and one quantile a grid has 2 runs; the paper's five quantiles would make 10."""
    (found,) = account_grids(own_grid(repo))
    assert (found.runs, found.stored, found.is_within_budget) == (2, 2, True)
    assert found.spent == pytest.approx(3.0, rel=1e-4)


def test_account_grids_larger_grid_charged_whole(repo) -> None:
    """All 12 runs of six quantiles at k = 2 are charged; the paper's grid would have 10."""
    rows = own_grid(repo, grid={"quantiles": [0.1, 0.2, 0.3, 0.5, 0.7, 0.9]})
    assert len(rows) == 12
    for stored in (1, 5, 12):
        (found,) = account_grids(rows[:stored])
        assert (found.runs, found.stored) == (12, stored)
        assert found.spent == pytest.approx(3.0, rel=1e-4)


def test_account_grids_altered_size_rejected(repo) -> None:
    """A row with an edited `grid_runs` no longer matches its run_id."""
    rows = own_grid(repo, grid={"quantiles": [0.1, 0.5]})
    assert account_grids(rows)[0].runs == 4
    with pytest.raises(OsoError, match="run_id: not the identity of its values"):
        account_grids(rows.assign(grid_runs=1))


@pytest.mark.parametrize("axis", ["learning_rate", "threshold", "quantile"])
@pytest.mark.parametrize("search_accounting", ["composition", "random_stopping"])
def test_account_grids_points_across_seeds_counted(axis, search_accounting) -> None:
    """Nine points of one seed and nine other points of a second seed are a grid of 18 runs."""
    whole = grid if search_accounting == "composition" else stopping_grid
    rows = pd.concat([whole(), whole(rows=18, seeds=(1,)).iloc[9:]], ignore_index=True)
    places = rows["learning_rate"] / 10  # a quantile is below 1
    rows = rows.assign(learning_rate=1.0, threshold=1.0).assign(**{axis: places})
    (found,) = account_grids(named(rows))
    assert found.runs == 18
    assert not found.is_within_budget


@pytest.mark.parametrize("search_accounting", ["composition", "random_stopping", "single"])
@pytest.mark.parametrize("delta", [1e-4, 1e-6])
def test_account_grids_keeps_row_delta(search_accounting, delta) -> None:
    """The account, its table and the PLD accountant use the delta of the rows."""
    found = account_grids(
        grid(rows=1, search_accounting=search_accounting, delta=delta, epsilon=1e3)
    )
    assert [one.delta for one in found] == [delta]
    table = accounts_table(found)
    assert table["delta"].tolist() == [delta]
    if search_accounting != "random_stopping":
        assert table["pld"].item() == pytest.approx(
            compute_epsilon(found[0].ledgers, delta, "pld"), rel=1e-6
        )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"ledger": ledger(steps=STEPS - 1)}, "its ledger has 199 steps, the row 200"),
        ({"ledger": ledger(rate=0.01)}, "its ledger has sampling rate 0.01, the row 0.02"),
        ({"ledger": ledger(nu=0.99 * NU)}, "its ledger has noise multiplier"),
        ({"ledger": ledger(nu=0.0)}, "its ledger has noise multiplier 0"),
        ({"noise_multiplier": 2 * NU}, "its ledger has noise multiplier"),
        ({"ledger": None}, "ledger: not readable"),
        ({"ledger": "{"}, "ledger: not readable"),
        ({"ledger": ledger().replace("poisson", "shuffled")}, "sampling 'shuffled'"),
        ({"epsilon": None}, "epsilon is missing"),
        ({"delta": None}, "delta is missing"),
        ({"noise_multiplier": None}, "noise_multiplier is missing"),
        ({"seed": None}, "seed is missing"),
        ({"k": None}, "k is missing"),
        ({"steps": None}, "steps is missing"),
        ({"examples": 12000}, "its ledger has sampling rate 0.02, the row 0.01"),
        ({"status": "diverged"}, "diverged_at is missing"),
        ({"status": "diverged", "diverged_at": 0}, "its ledger has 200 steps, the row 0"),
        ({"status": "diverged", "diverged_at": 201}, "its ledger has 200 steps, the row 201"),
        ({"status": "diverged", "diverged_at": 7}, "its ledger has 200 steps, the row 7"),
    ],
)
def test_account_grids_mismatched_ledger_rejected(fault, message) -> None:
    with pytest.raises(OsoError, match=rf"run \w+: .*{message}"):
        account_grids(grid(**fault))


STOPPED = RandomStoppingSearch(
    PoissonSampling(RATE), STEPS, 9, stopping_eta=STOPPING_ETA["logarithmic"]
)
STOPPED_NU = STOPPED.noise_multiplier(EPSILON, 1e-5)


def stopping_grid(rows=9, nu=STOPPED_NU, **other) -> pd.DataFrame:
    claim = {"search_accounting": "random_stopping", "noise_multiplier": nu, "ledger": ledger(nu)}
    return grid(rows, **{**claim, **other})


def test_account_grids_random_stopping_costs_budget() -> None:
    """Random stopping has a price of its own, which is below the composition of its runs."""
    (found,) = account_grids(stopping_grid(seeds=(0, 1)))
    assert found.name == "glyphs.online.k9.eps3.random_stopping"
    assert (found.runs, found.stored, found.seeds) == (9, 9, 2)
    assert found.spent == pytest.approx(EPSILON, rel=1e-5)
    assert found.is_within_budget
    (composed,) = account_grids(stopping_grid(search_accounting="composition"))
    assert composed.spent > 1.2 * EPSILON
    table = accounts_table([found, *account_grids(grid())])
    assert table["pld"].isna().tolist() == [True, False]  # RDP alone knows this price


@pytest.mark.parametrize("nu", [0.99 * STOPPED_NU, 0.5 * STOPPED_NU])
def test_check_budgets_random_stopping_excess_rejected(nu) -> None:
    found = account_grids(stopping_grid(nu=nu))
    with pytest.raises(OsoError, match=r"eps3\.random_stopping: its ledgers cost epsilon"):
        check_budgets(found)


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_account_grids_random_stopping_priced_from_any_row(rows) -> None:
    (found,) = account_grids(stopping_grid(rows=rows, nu=0.9 * STOPPED_NU))
    with pytest.raises(OsoError, match="its ledgers cost epsilon"):
        check_budgets([found])


def test_account_grids_random_stopping_costliest_charged() -> None:
    """Random stopping is charged as its costliest run, also where the others diverged early."""
    rows = stopping_grid(rows=3)
    rows.loc[:1, "status"] = "diverged"
    rows.loc[:1, "diverged_at"] = [10, 1]
    rows.loc[:1, "ledger"] = [ledger(STOPPED_NU, 10), ledger(STOPPED_NU, 1)]
    (found,) = account_grids(rows)
    assert (found.runs, found.stored) == (9, 3)
    assert found.spent == pytest.approx(EPSILON, rel=1e-5)


def test_account_grids_uses_stopping_distribution(repo) -> None:
    smoke = load_config(repo / "config/ci/smoke.yaml").model_dump()
    spent = {}
    for shape in ("logarithmic", "geometric"):
        stopping = {"search_accounting": "random_stopping", "stopping_distribution": shape}
        plan = make_plan(parse_config({**smoke, **stopping}, "x"))
        rows = rows_of(plan, "glyphs.online.k2.eps3.random_stopping")
        (found,) = account_grids(rows, plan)
        assert found.spent == pytest.approx(3.0, rel=1e-4)
        spent[shape] = account_grids(rows)[0].spent
    assert spent == {shape: pytest.approx(3.0, rel=1e-4) for shape in spent}


def test_account_grids_one_candidate_rejected() -> None:
    with pytest.raises(
        OsoError, match=r"must be > 1 .the mean. for search_accounting random_stopping"
    ):
        account_grids(stopping_grid(rows=1, k=1, grid_runs=1))


def test_account_grids_non_private_omitted() -> None:
    plain = {"method": "no_dp", "epsilon": None, "delta": None, "noise_multiplier": None}
    exact = Ledger(PoissonSampling(RATE), [((SumQuery("plain_gradient", 0.0),), STEPS)])
    assert account_grids(grid(**plain, ledger=exact.to_json())) == []


@pytest.mark.parametrize(
    "other",
    [
        {"momentum": 0.5},
        {"precision": "bfloat16"},
        {"delta": 1e-6},
        {"k": 10},
        {"batch_size": 240, "steps": STEPS // 2, "ledger": ledger(steps=STEPS // 2, rate=2 * RATE)},
        {"epochs": 8, "steps": 2 * STEPS, "ledger": ledger(steps=2 * STEPS)},
    ],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.parametrize("there", [9, 1])
def test_account_grids_separates_settings(other, there: int) -> None:
    """Runs of another setting are a grid of their own, also where only one of them is stored."""
    rows = pd.concat([grid(), grid(**other)[:there]], ignore_index=True)
    assert [found.stored for found in account_grids(rows)] == [9, there]


def test_accounts_table_costliest_by_all_accountants() -> None:
    cheaper = grid(epsilon=4.0)
    found = account_grids(pd.concat([cheaper, grid()], ignore_index=True))
    assert most_expensive(found) == {"glyphs": found[1]}
    table = accounts_table(found)
    assert math.isnan(table.loc[0, "pld"])
    assert table.loc[1, "pld"] == pytest.approx(table.loc[1, "prv"], rel=0.02)
    assert 0.8 * EPSILON < table.loc[1, "pld"] < table.loc[1, "rdp"]
    assert accounts_table(found, all_accountants=True)["prv"].notna().all()
    assert table["verdict"].tolist() == ["within", "within"]


def test_accounts_table_queries_each_accountant(monkeypatch) -> None:
    """The columns `pld` and `prv` hold the answers of these accountants."""
    answers = {"pld": 1.25, "prv": 1.5}
    monkeypatch.setattr(GridAccount, "spent_by", lambda _, name: answers[name])
    (row,) = accounts_table(account_grids(grid())).to_dict("records")
    assert (row["pld"], row["prv"]) == (1.25, 1.5)
    assert row["rdp"] == pytest.approx(EPSILON, rel=1e-4)


def test_account_grids_priced_from_ledger() -> None:
    """The text of a ledger is what is priced; one that was edited to fewer queries is refused."""
    both = (SumQuery("clipped_gradient", NU), SumQuery("clipped_direction", NU))
    text = Ledger(PoissonSampling(RATE), [(both, STEPS)]).to_json()
    cheap = NU / math.sqrt(2)  # two sums of NU cost one of this
    (found,) = account_grids(grid(ledger=text, noise_multiplier=cheap))
    assert not found.is_within_budget
    stored = json.loads(text)
    stored["steps"][0]["queries"].pop()
    edited = grid(ledger=json.dumps(stored), noise_multiplier=cheap)
    with pytest.raises(OsoError, match="its ledger has noise multiplier"):
        account_grids(edited)
    (found,) = account_grids(edited.assign(noise_multiplier=NU))
    assert found.is_within_budget


@pytest.mark.parametrize("noise", [(1.0, 3.0), (3.0, 1.0), (2.5, 1.5, 2.0), (2.0,)])
@pytest.mark.parametrize("steps", [7, 50])
def test_pad_to_full_run_charges_minimum(noise, steps) -> None:
    """Steps that a run did not make are charged with the least noise multiplier of its ledger."""
    made = Ledger(PoissonSampling(RATE), [((SumQuery("g", nu),), 2) for nu in noise])
    whole = pad_to_full_run(made, full_run_ledger([made], steps))
    expected = Counter(dict.fromkeys(noise, 2)) + Counter({min(noise): steps - 2 * len(noise)})
    booked: Counter[float] = Counter()
    for nu, count in whole.releases():
        booked[nu] += count
    assert booked == expected
    assert full_run_ledger([made], steps).releases() == [(min(noise), steps)]
