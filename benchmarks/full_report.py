"""Time and memory of `oso report` for a store as large as the paper's complete study.

    python benchmarks/full_report.py             # make the store if missing, then report
    python benchmarks/full_report.py --fewer 10  # a tenth of the evaluations, for a quick check

The store is synthetic, from a fixed seed, and is written below build/: its values say nothing about
any method. Its runs, grids, noise and ledgers have the number and form of real ones.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from oso_dp.accounting.search import Search
from oso_dp.analysis.search_costs import COSTS_FILE, write_costs
from oso_dp.methods import find_method
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.write import write_table
from oso_dp.study.config import GridSection
from oso_dp.study.grid import make_candidates

FOLDER = Path(__file__).resolve().parents[1] / "build" / "full_report"
SEED = 20240220
# data set -> training examples, metric, and budgets at each k (the paper's tables)
STUDY = {
    "mnist": (60_000, "accuracy", dict.fromkeys((5, 7, 9), (3, 5, 7, 9))),
    "fashion_mnist": (60_000, "mse", dict.fromkeys((5, 7, 9), (1, 2, 3, 4))),
    "ag_news": (120_000, "accuracy", dict.fromkeys((5, 7, 9), (3, 5, 7, 9))),
}
METHODS = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")
BATCH, EPOCHS, EVERY, SEEDS, DELTA = 512, 10, 50, 5, 1e-5
SPLITS = ("test", "test_even", "test_odd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--fewer", type=int, default=1, help="keep every FEWER-th evaluation")
    options = parser.parse_args()
    store = options.folder / f"results_{options.fewer}"
    if not (store / "runs.parquet").exists():
        began = time.monotonic()
        make_store(store, options.fewer)
        print(f"{store}: made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    began = time.monotonic()
    command = ["oso", "report", "--results", store, "--output", options.folder / "report"]
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    runs = len(pd.read_parquet(store / "runs.parquet", columns=["run_id"]))
    evaluations = len(pd.read_parquet(store / "evaluations.parquet", columns=["step"]))
    print(
        f"{runs:,} runs, {evaluations:,} evaluations: {time.monotonic() - began:.1f} s "
        f"({used.ru_utime + used.ru_stime:.1f} s of one core), {used.ru_maxrss / 2**20:.2f} GiB"
    )
    return status


def make_store(store: Path, fewer: int) -> None:
    """runs.parquet, evaluations.parquet, each grid's noise as plan.json, and search_noise.csv."""
    draw = np.random.default_rng(SEED)
    grids, prices, runs, evaluations = [], {}, [], []
    for cohort in cohorts():
        n, steps = cohort["examples"], cohort["steps"]
        points = make_candidates(find_method(cohort["method"]).search, GridSection(), cohort["k"])
        cohort["runs"] = len(points)
        if cohort["epsilon"] is not None:
            setting = (n, steps, len(points), cohort["epsilon"])
            if setting not in prices:
                search = Search(PoissonSampling(BATCH / n), steps, len(points))
                prices[setting] = math.ceil(1e5 * search.noise_multiplier(setting[3], DELTA)) / 1e5
            cohort["noise_multiplier"] = prices[setting]
        grids.append(cohort | {"sampling_rate": BATCH / n})
        for point in points:
            for seed in range(SEEDS):
                run, seen = make_run(cohort, point, seed, f"{len(runs):020x}", draw, fewer)
                runs.append(run)
                evaluations.append(seen)
    write_table(store / "evaluations.parquet", "evaluations", pd.concat(evaluations))
    write_table(store / "runs.parquet", "runs", runs)
    (store / "plan.json").write_text(json.dumps(grids, indent=1))
    write_costs(store / "plan.json", store / COSTS_FILE)


def cohorts() -> Iterator[dict]:
    for dataset, (n, metric, budgets) in STUDY.items():
        for method in METHODS:
            for k, epsilons in budgets.items():
                for epsilon in epsilons if find_method(method).is_private else (None,):
                    yield {
                        "dataset": dataset,
                        "metric": metric,
                        "method": method,
                        "k": k,
                        "epsilon": epsilon,
                        "delta": None if epsilon is None else DELTA,
                        "examples": n,
                        "steps": math.ceil(EPOCHS * n / BATCH),
                        "noise_multiplier": None,
                    }


def make_run(
    cohort: dict, point: dict, seed: int, run_id: str, draw: np.random.Generator, fewer: int
) -> tuple[dict, pd.DataFrame]:
    """A row of runs, and its evaluations: a curve that ends where the point's quality says."""
    method = find_method(cohort["method"])(find_method(cohort["method"]).Options(), 0.9)
    start = method.initial_values(point)
    nu, steps = cohort["noise_multiplier"], cohort["steps"]
    queries, second = (SumQuery("plain_gradient", 0.0),), None
    if nu is not None:
        first, second = method.split_noise(nu, BATCH)
        queries = (SumQuery("clipped_gradient", first),)
        queries += (SumQuery("second", second),) if second else ()
    # Best where rho C is about 0.03; the largest products diverge.
    product = start["learning_rate"] * (start.get("threshold") or 1.0)
    quality = math.exp(-((math.log10(product) + 1.5 + (start.get("quantile") or 0)) ** 2) / 4)
    quality *= 1 - 0.05 * (nu or 0) + 0.01 * draw.normal()
    ended = int(draw.integers(100, steps)) if product > 1000 else None
    at = np.unique(np.append(np.arange(EVERY, ended or steps, EVERY), [] if ended else [steps]))
    at = at[::fewer].astype(int)
    curve = quality * (1 - 0.7 * np.exp(-at / 200)) + 0.005 * draw.normal(size=len(at))
    value = 0.1 + 0.85 * curve if cohort["metric"] == "accuracy" else 0.2 * np.exp(-3 * curve)
    walk = np.exp(2.5e-3 * np.cumsum(draw.choice([-1, 1], size=len(at))) * EVERY / 3)
    run = {
        **{name: cohort[name] for name in ("dataset", "method", "k", "epsilon", "delta")},
        **{name: cohort[name] for name in ("examples", "steps")},
        **{name: start.get(name) for name in ("learning_rate", "threshold", "quantile")},
        "run_id": run_id,
        "search_accounting": "composition",
        "seed": seed,
        "momentum": 0.9 if method.uses_momentum else None,
        "noise_multiplier": nu,
        "query_noise_multiplier": second,
        "sampling": "poisson",
        "batch_size": BATCH,
        "epochs": EPOCHS,
        "status": "diverged" if ended else "finished",
        "diverged_at": ended,
        "device": "made up",
        "torch_version": "none",
        "package_version": "none",
        "code_hash": "made up",
        "wall_seconds": 60.0,
        "ledger": Ledger(
            PoissonSampling(BATCH / cohort["examples"]), [(queries, ended or steps)]
        ).to_json(),
    }
    seen = {
        "run_id": run_id,
        "step": np.repeat(at, len(SPLITS)),
        "split": np.tile(SPLITS, len(at)),
        "metric": cohort["metric"],
        "value": np.repeat(value, len(SPLITS)) + 0.002 * draw.normal(size=len(SPLITS) * len(at)),
        "loss": np.repeat(1 / at, len(SPLITS)),
        "threshold": np.nan,
        "learning_rate": start["learning_rate"],
        "fraction_clipped": np.nan,
    }
    if nu is not None:
        adapts = cohort["method"] in ("online", "fixed_quantile")
        seen["threshold"] = start["threshold"] * np.repeat(walk if adapts else walk**0, len(SPLITS))
    if cohort["method"] == "online":
        seen["learning_rate"] *= np.repeat(1 / walk, len(SPLITS))
    return run, pd.DataFrame(seen)


if __name__ == "__main__":
    sys.exit(main())
