"""A training step of models that people have: `train_private` beside plain SGD and Opacus.

    python benchmarks/practitioner                                # every case, in minutes
    python benchmarks/practitioner transformer lstm --turns 4
    python benchmarks/practitioner --output benchmarks/results/practitioner.csv

Each competitor has a process of its own; they take turns, so that what runs beside them hits all
alike. The table has medians of the steps' CPU time on one thread, and the highest resident memory
above what was held before model and training were made, checks included. Opacus draws its noise
from torch's generator (`secure_mode=False`), `train_private` from the system's, or seeded. It is
charged for drawing its Poisson batches and for the ledger; the peers step on a fixed batch.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.openmp import spin_briefly
from oso_dp.training.provenance import commit, device_name

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from cases import CASES  # noqa: E402
from csv_file import write_csv  # noqa: E402
from turns import COMPETITORS, take_turns  # noqa: E402


def rows_of(case: str, names: list[str], turns: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each competitor."""
    rows = []
    measured = take_turns(case, names, turns, seconds)
    base = measured.get("sgd")
    plain = statistics.median(base.seconds) if base and base.seconds else None
    for name, found in measured.items():
        row: dict[str, Any] = {"case": case, "competitor": name}
        row |= dict.fromkeys(("ms_per_step", "lower_quartile", "upper_quartile", "times_sgd"), "")
        row |= {"peak_mib": "", "steps": len(found.seconds), "reason": found.reason}
        if not found.reason:
            low, middle, high = statistics.quantiles(found.seconds, n=4, method="inclusive")
            row["ms_per_step"] = round(1e3 * middle, 2)
            row["lower_quartile"], row["upper_quartile"] = round(1e3 * low, 2), round(1e3 * high, 2)
            row["times_sgd"] = round(middle / plain, 2) if plain else ""
            row["peak_mib"] = round(found.peak_bytes / 2**20)
        rows.append(row | {"device": device_name("cpu"), "commit": commit() or ""})
    return rows


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """A case's rows as lines to print."""
    return [
        f"{row['case']:18} {row['competitor']:16} "
        + (
            f"{row['ms_per_step']:>9} ms {row['times_sgd']:>6} x sgd {row['peak_mib']:>6} MiB"
            if not row["reason"]
            else f"{row['reason'][:150]}"
        )
        for row in rows
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, default=[*COMPETITORS])
    parser.add_argument("--turns", type=int, default=8, help="of each (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, at least one step")
    parser.add_argument("--output", type=Path, metavar="CSV", help="keep the rows")
    options = parser.parse_args(arguments)
    if unknown := [case for case in options.cases if case not in CASES]:
        print(f"practitioner: error: {unknown[0]!r}; cases are {', '.join(CASES)}", file=sys.stderr)
        return 2
    spin_briefly()  # the processes inherit it
    rows = []
    try:
        for case in options.cases or CASES:
            found = rows_of(case, options.competitors, options.turns, options.seconds)
            print(*shown(found), sep="\n", flush=True)
            rows += found
            if options.output:
                write_csv(options.output, rows)
    except OsoError as error:
        print(f"practitioner: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
