"""Made-up results: plausible rows in the public schema, small enough to check by hand."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.searches import make_search

from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.analysis.result_set import GRID_COLUMNS, ResultSet
from oso_dp.data.catalogue import DATASETS
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import records
from oso_dp.results.schema import EVALUATIONS, RUNS
from oso_dp.study.identity import OPTIONS, make_run_id

SIZES = {
    "online": lambda k: k,
    "fixed_threshold": lambda k: k * k,
    "fixed_quantile": lambda k: 5 * k,
    "adam_wosm": lambda k: k,
}


def options(**more):
    """The columns of a row whose options are known."""
    basic = {"model": "cnn", "method_options": "", "grid_runs": 9, "evaluate_every": 50}
    basic |= {"final_activation": False, "loss": "mean", "randomness": "seeded"}
    return dict.fromkeys(OPTIONS) | basic | more


def named(rows):
    """The rows of a table `runs`, each with the identity of its values."""
    return rows.assign(run_id=[make_run_id(row) for row in records(rows)])


@dataclass
class Store:
    """Collects runs with their evaluations; `frames()` for functions, `write()` for folders."""

    runs: list[dict] = field(default_factory=list)
    evaluations: list[dict] = field(default_factory=list)

    def add(
        self,
        dataset="mnist",
        method="online",
        k=9,
        epsilon=9.0,
        seed=0,
        learning_rate=1.0,
        threshold=0.1,
        quantile=None,
        values=(0.5, 0.8, 0.9),
        metric="accuracy",
        diverged_at=None,
        every=50,
        noise_multiplier=None,
        halves=None,
        shape="logarithmic",
        **more,
    ):
        """One run with one test value per evaluation; returns its run_id.

        halves: per evaluation the values on the even- and the odd-numbered test examples.
        shape: of a search by random stopping, for its noise.
        """
        private = method != "no_dp"
        size = SIZES.get(method, lambda k: k)(k)
        # More noise than these budgets ask for, and more of it for a larger grid.
        ample = 100 * size**0.3 * max(1.0, 3.0 / epsilon)
        if more.get("search_accounting") == "random_stopping" and size > 1:
            ample = stopped_noise(size, epsilon, shape)
            more = {"stopping_distribution": shape, **more}
        nu = (noise_multiplier or ample) if private else None
        examples = DATASETS[dataset].examples if dataset in DATASETS else 60_000
        run = {
            "run_id": None,
            "dataset": dataset,
            "method": method,
            "k": k,
            "epsilon": epsilon if private else None,
            "delta": 1e-5 if private else None,
            "search_accounting": "composition",
            "seed": seed,
            "learning_rate": learning_rate,
            "threshold": threshold if private else None,
            "quantile": quantile,
            "momentum": None if method in ("adam_wosm", "no_dp") else 0.9,
            "noise_multiplier": nu,
            "query_noise_multiplier": 7.124 * nu if method == "online" else None,
            "sampling": "poisson",
            "examples": examples,
            "batch_size": examples,  # accountants answer at once where q = 1
            "epochs": 600,
            "steps": 600,
            "precision": "float32",
            **options(grid_runs=size),
            "rng_version": 1,
            "status": "finished" if diverged_at is None else "diverged",
            "diverged_at": diverged_at,
            "device": "cpu",
            "commit": None,
            "torch_version": "2.13.0",
            "package_version": "0.1.0",
            "code_hash": "0123456789abcdef",
            "wall_seconds": 12.5,
            "ledger": None,
        } | more
        run["ledger"] = run["ledger"] or _ledger(run)
        run["run_id"] = make_run_id(run)
        self.runs.append(run)
        adapts_c = method in ("online", "fixed_quantile")
        for i, value in enumerate(values):
            step = every * (i + 1)
            if i == len(values) - 1 and diverged_at is None:
                step = run["steps"]  # a finished run is evaluated at its end
            # The halves are better than the whole: a rule that mixes splits is seen.
            even, odd = halves[i] if halves else (1.0 - 0.0001 * seed,) * 2
            for split, of_split in (("test", value), ("test_even", even), ("test_odd", odd)):
                self.evaluations.append(
                    {
                        "run_id": run["run_id"],
                        "step": step,
                        "split": split,
                        "metric": metric,
                        "value": of_split,
                        "loss": 1.0 / step,
                        "threshold": _walk(threshold, step, adapts_c, method) if private else None,
                        "learning_rate": _walk(learning_rate, step, method == "online", method),
                        "fraction_clipped": 0.5 if method == "fixed_quantile" else None,
                    }
                )
        return run["run_id"]

    def frames(self):
        """The tables as `read_results` gives them."""
        return tuple(table.to_pandas() for table in self.tables())

    def tables(self):
        return (
            pa.Table.from_pylist(self.runs, schema=RUNS),
            pa.Table.from_pylist(self.evaluations, schema=EVALUATIONS),
        )

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in zip(("runs", "evaluations"), self.tables(), strict=True):
            pq.write_table(table, folder / f"{name}.parquet")
        return folder


@cache
def stopped_noise(runs, epsilon, shape):
    search = make_search(PoissonSampling(1.0), 600, runs, "random_stopping", STOPPING_ETA[shape])
    return 1.00001 * search.noise_multiplier(epsilon, 1e-5)


def _ledger(run):
    """What the mechanism would have written for this run."""
    nu, nu_q = run["noise_multiplier"], run["query_noise_multiplier"]
    sums = [SumQuery("clipped_gradient", nu or 0.0)]
    if nu_q is not None:
        sums = [
            SumQuery("clipped_gradient", gradient_noise_multiplier(nu, nu_q)),
            SumQuery("direction", nu_q),
        ]
    steps = run["steps"] if run["status"] == "finished" else run["diverged_at"]
    sampling = PoissonSampling(run["batch_size"] / run["examples"])
    return Ledger(sampling, [(tuple(sums), steps)]).to_json()


def _walk(start, step, adapts, method):
    if start is None or not adapts:
        return start
    rate = 2.5e-3 if method == "online" else 4e-3
    return start * float(np.exp(rate * step * np.cos(step / 400)))


def _curve(rng, final, n=12):
    t = np.arange(1, n + 1)
    return tuple(np.clip(final * (1 - 0.6 * np.exp(-t / 2)) + rng.normal(0, 0.005, n), 0.0, 1.0))


@pytest.fixture
def store():
    return Store()


def fill_paper(store, seeds=1, epsilons=(9.0,), dataset="mnist", k=9):
    """The five methods at one k: two grid points each, FixedThreshold's second diverges."""
    rng = np.random.default_rng(5)
    for epsilon in epsilons:
        for seed in range(seeds):
            cell = {"dataset": dataset, "k": k, "epsilon": epsilon, "seed": seed}
            for rate, final in ((1.0, 0.95), (0.1, 0.90)):
                store.add(**cell, learning_rate=rate, values=_curve(rng, final))
            store.add(
                **cell,
                method="fixed_threshold",
                learning_rate=10**-2.5,
                threshold=10.0,
                values=_curve(rng, 0.91),
            )
            store.add(
                **cell,
                method="fixed_threshold",
                learning_rate=10.0,
                threshold=10.0,
                values=_curve(rng, 0.3, n=3),
                diverged_at=170,
            )
            store.add(
                **cell,
                method="fixed_quantile",
                learning_rate=10**-2.5,
                quantile=0.7,
                values=_curve(rng, 0.91),
            )
            store.add(
                **cell,
                method="adam_wosm",
                learning_rate=1e-3,
                threshold=10**1.5,
                values=_curve(rng, 0.93),
            )
    for seed in range(seeds):
        store.add(
            dataset=dataset,
            method="no_dp",
            k=k,
            seed=seed,
            learning_rate=10**-2.5,
            values=_curve(rng, 0.99),
        )
    return store


@pytest.fixture
def paper_store():
    """MNIST, k = 9, epsilon = 9, one seed: the smallest store that a paper's table needs."""
    return fill_paper(Store())


@pytest.fixture
def glyphs_store():
    """The demo: a data set the paper does not have, two budgets, two seeds."""
    return fill_glyphs(Store())


def fill_glyphs(store):
    return fill_paper(store, seeds=2, epsilons=(3.0, 9.0), dataset="glyphs", k=3)


def grid_table(grids=()) -> pd.DataFrame:
    """What `list_grids` returns of a plan with these grids."""
    return pd.DataFrame([*grids], columns=GRID_COLUMNS)


@pytest.fixture
def study():
    """From a store to what the report is computed from, without files."""

    def make(store, grids=()):
        return ResultSet(*store.frames(), grid_table(grids))

    return make


@pytest.fixture(scope="session")
def make_store():
    """A new, empty store for each example of a property."""
    return Store
