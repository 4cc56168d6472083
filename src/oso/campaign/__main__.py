"""`python -m oso.campaign`: argparse, because a bare machine has no typer."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from oso.errors import OsoError

if TYPE_CHECKING:
    from oso.campaign.loop import Campaign
    from oso.data.arrays import Arrays
    from oso.study.cohort import Cohort
    from oso.study.plan import Plan

AT_ONCE = {"cpu": 1, "cuda": 64}  # `auto`: to begin with; halved where memory does not suffice


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; the exit status: 0, also with work left, or 2 with one line for an error."""
    began = time.monotonic()
    try:
        options = _parser().parse_args(arguments)
        campaign = _prepare(options, began + 60 * options.minutes)
        campaign.run()
    except OsoError as error:
        print(f"oso: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    left = sum(runs for _, runs in campaign.left)
    print(
        f"done: {campaign.runs:,} runs in {campaign.groups:,} groups, "
        f"{(time.monotonic() - began) / 60:.1f} minutes; left: {left:,} runs, "
        f"about {campaign.hours_left:,.1f} hours at the "
        f"{'measured' if campaign.speed.known else 'planned'} speed"
    )
    return 0


def _prepare(options: argparse.Namespace, deadline: float) -> "Campaign":
    import torch

    from oso.campaign.loop import Campaign
    from oso.campaign.order import all_work
    from oso.campaign.parts import Parts
    from oso.study.plain import paper_best_runs, read_plain_plan
    from oso.training.provenance import device_name

    plans = [read_plain_plan(path) for path in options.plan]
    _check_randomness(plans)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise OsoError("--device cuda: no CUDA device is visible here; allowed is cpu")
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    everything = all_work(plans, options.only)
    stores = {path.parent for path in options.plan}
    default = sorted(store for store in stores if (store / "runs.parquet").exists())
    parts = Parts(options.results, default if options.have is None else options.have)

    users = {work.cohort.data_file: work.cohort for work in everything}

    @cache
    def arrays(data_file: str) -> "Arrays":
        return _load(options.data, users[data_file])

    campaign = Campaign(
        everything,
        {run_id for plan in plans for run_id in paper_best_runs(plan.config)},
        parts,
        arrays,
        deadline=deadline,
        device=device,
        runs_at_once=options.runs_at_once or AT_ONCE[device],
        say=lambda line: print(line, flush=True),
    )
    for name in {cohort.data_file for cohort, _ in campaign.left}:
        if not (options.data / name).exists():
            raise OsoError(
                f"{options.data / name}: no such file; `oso data {users[name].dataset} --output "
                "...` makes it, or leave the data set out with --only"
            )
    names = ", ".join(plan.config.name for plan in plans)
    campaign.say(
        f"{device_name(device)}, {options.minutes:g} minutes: "
        f"{sum(runs for _, runs in campaign.left):,} runs of {names} to do"
    )
    return campaign


def _load(folder: Path, cohort: "Cohort") -> "Arrays":
    from oso.data.arrays import load_arrays
    from oso.study.preparation import check_prepared

    path = folder / cohort.data_file
    arrays, provenance = load_arrays(path)
    check_prepared(str(path), provenance, cohort.dataset, cohort.preparation)
    return arrays


def _check_randomness(plans: "Sequence[Plan]") -> None:
    if any(plan.config.randomness == "system" for plan in plans):
        try:
            import scipy.special  # noqa: F401
        except ImportError:
            raise OsoError("randomness system: needs scipy, which is not installed") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OsoError(f"{message} (see {self.prog} --help)")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0")
    return value


def _count_or_auto(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be auto or a whole number from 1")
    return int(text)


_OPTIONS: dict[str, dict[str, Any]] = {
    "minutes": {
        "type": _positive,
        "required": True,
        "help": "when to stop",
    },
    "results": {
        "type": Path,
        "required": True,
        "metavar": "OUT",
        "help": "folder for the parts",
    },
    "have": {
        "type": Path,
        "nargs": "+",
        "metavar": "FOLDER",
        "help": "results stores or other campaigns' folders; their runs are not trained again "
        "(the plans' folders, if they are results stores)",
    },
    "data": {
        "type": Path,
        "default": Path("build/data"),
        "metavar": "FOLDER",
        "help": "prepared data sets, as .npz (%(default)s)",
    },
    "plan": {
        "type": Path,
        "nargs": "+",
        "default": [Path("results/plan.json")],
        "metavar": "FILE",
        "help": "what `oso plan --output` wrote, once or more often (results/plan.json)",
    },
    "device": {
        "choices": ("cpu", "cuda"),
        "help": "cuda if there is one",
    },
    "runs-at-once": {
        "type": _count_or_auto,
        "metavar": "N|auto",
        "help": "how many runs of a cohort train side by side (auto: 1 on a CPU; on a GPU 64, or "
        "what its memory holds)",
    },
    "only": {
        "nargs": "+",
        "default": [],
        "metavar": "METHOD/DATASET",
        "help": "patterns, as online/mnist or '*/ag_news'",
    },
}


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m oso.campaign",
        description="Train as many runs of a study as end in time. Needs torch, numpy, pandas, "
        "pyarrow, and nothing else. Complete runs are kept whatever happens; call it again to go "
        "on. `oso collect RESULTS/* --store results` adds them to a results store.",
        allow_abbrev=False,
    )
    for name, settings in _OPTIONS.items():
        parser.add_argument(f"--{name}", **settings)
    return parser


if __name__ == "__main__":
    sys.exit(main())
