"""Compare candidate defaults of `train_private` by the score of untuned trainings.

    python benchmarks/default_choice --role choose --minutes 60     # again, until nothing is left
    python benchmarks/default_choice --role judge --candidates online opacus_0.5
    python benchmarks/default_choice --table                        # of the rows so far

Needs `build/data` (`make campaign` prepares it). A row is one training with seeded noise, scored on
the test set after the last step. Rows are kept in results/default_choice.csv; what is there is not
trained again.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from scipy.stats import t as student
from torch import nn

from oso_dp import train_private
from oso_dp.privacy.sampling import count_steps
from oso_dp.training.provenance import commit

sys.path[:0] = [str(Path(__file__).parent)]

from candidates import CANDIDATES  # noqa: E402
from tasks import CHOOSE, JUDGE, TASKS, data_of  # noqa: E402

ROWS = Path(__file__).parents[1] / "results" / "default_choice.csv"
EPOCHS, EPSILONS, SEEDS, DELTA = (1, 3, 10), (1.0, 3.0, 8.0), (0, 1, 2), 1e-5
KEY = ["task", "candidate", "epochs", "epsilon", "seed"]


def train(task: str, candidate: str, epochs: int, epsilon: float, seed: int) -> dict[str, Any]:
    spec = TASKS[task]
    inputs, targets, test_inputs, test_targets = data_of(task)
    torch.manual_seed(seed)
    model = spec.model()
    steps = count_steps(epochs, len(targets), spec.batch_size)
    began = time.process_time()
    trained = train_private(
        model, spec.loss(), (inputs, targets), epsilon=epsilon, delta=DELTA, epochs=epochs,
        batch_size=spec.batch_size, randomness="seeded", seed=seed, progress=False,
        **CANDIDATES[candidate](steps),
    )  # fmt: skip
    seconds = time.process_time() - began
    with torch.no_grad():
        fitted: nn.Module = trained.model.eval()
        outputs = torch.cat([fitted(part) for part in test_inputs.split(1000)])
    score = spec.score(outputs, test_targets) if outputs.isfinite().all() else float("nan")
    return {"steps": steps, "status": trained.status, "score": score, "seconds": round(seconds, 1)}


def rows_so_far() -> pd.DataFrame:
    return pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame(columns=KEY)


def append(row: dict[str, Any]) -> None:
    table = pd.DataFrame([row])
    table.to_csv(ROWS, mode="a", header=not ROWS.exists(), index=False, lineterminator="\n")


def table(rows: pd.DataFrame) -> str:
    """Regret of each candidate: points below the best at the same task, epochs and epsilon.

    At most 20, which a diverged training gets.
    """
    cell = ["task", "epochs", "epsilon"]
    means = rows.groupby([*cell, "candidate"]).score.mean().unstack("candidate")
    regret = means.rsub(means.max(axis=1), axis=0).clip(upper=20)  # a failure counts 20 points
    regret = regret.fillna(20).where(
        means.notna() | (rows.groupby([*cell, "candidate"]).size().unstack("candidate") > 0)
    )
    summary = pd.DataFrame(
        {"mean": regret.mean(), "worst": regret.max(), "cells": regret.notna().sum()}
    )
    by_task = regret.groupby("task").mean().T
    return summary.join(by_task).sort_values("mean").round(2).to_string()


def gains(rows: pd.DataFrame, candidate: str, rivals: Sequence[str]) -> pd.DataFrame:
    """How much more a candidate scores than its rivals on each task, in points.

    gain: the mean over the lengths and epsilons at which both have three seeds; low, high: its 95 %
    interval, over seeds. cells: the number of these. Columns mean the candidate's mean score.
    """
    found = []
    scores = rows.pivot_table(index=["task", *KEY[2:]], columns="candidate", values="score")
    for task in dict.fromkeys(rows.task):
        for rival in rivals:
            both = scores.loc[task][[candidate, rival]].dropna()
            whole = both.groupby(level=[0, 1]).filter(lambda cell: len(cell) == len(SEEDS))
            if whole.empty:
                continue
            by_seed = (whole[candidate] - whole[rival]).groupby("seed").mean()
            half = student.ppf(0.975, len(SEEDS) - 1) * by_seed.std() / len(SEEDS) ** 0.5
            found.append(
                {
                    "task": task,
                    "rival": rival,
                    "mean": whole[candidate].mean(),
                    "gain": by_seed.mean(),
                    "low": by_seed.mean() - half,
                    "high": by_seed.mean() + half,
                    "cells": len(whole) // len(SEEDS),
                }
            )
    return pd.DataFrame(found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--role", choices=(CHOOSE, JUDGE), default=CHOOSE)
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=[*CANDIDATES])
    parser.add_argument("--tasks", nargs="+", choices=TASKS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[*EPSILONS])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--table",
        action="store_true",
        help="train nothing; print the regrets, or with --role judge the first candidate's gains",
    )
    options = parser.parse_args(arguments)
    tasks = options.tasks or [name for name, one in TASKS.items() if one.role == options.role]
    rows = rows_so_far()
    if options.table:
        of_role = rows[rows.task.isin(tasks)]
        if options.role == CHOOSE:
            print(table(of_role))
        else:
            first, *others = options.candidates
            print(gains(of_role, first, others).round(2).to_string(index=False))
        return 0
    torch.set_num_threads(1)
    done = set(rows[KEY].itertuples(index=False, name=None))
    deadline = time.monotonic() + 60 * options.minutes
    # Short trainings first, and all candidates side by side.
    for epochs, seed, epsilon, task, candidate in product(
        EPOCHS, SEEDS, options.epsilons, tasks, options.candidates
    ):
        key = task, candidate, epochs, epsilon, seed
        if key in done:
            continue
        if time.monotonic() > deadline:
            return 0
        trained = train(*key)
        if trained["status"] == "interrupted":  # SIGTERM or Ctrl-C
            return 130
        row = {**dict(zip(KEY, key, strict=True)), **trained, "commit": commit() or ""}
        append(row)
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
