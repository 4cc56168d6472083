"""`python -m oso_dp.campaign`: argparse, because a bare machine has no typer."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from oso_dp.errors import OsoError
from oso_dp.exits import ended
from oso_dp.option_types import MAX_AT_ONCE, OptionError, path, real_number, whole_number

MAX_MINUTES = 1e6  # two years
MAX_RUNS_AT_ONCE = 100_000  # of a cohort; memory limits them far below


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; the exit status (`oso_dp.exits`): 0, also with work left."""
    began = time.monotonic()
    given = sys.argv[1:] if arguments is None else arguments

    def campaign() -> None:
        _run(_parser().parse_args(given), given)
        print(f"ended after {(time.monotonic() - began) / 60:.1f} minutes", flush=True)

    return ended(campaign)


def _run(options: argparse.Namespace, given: Sequence[str]) -> None:
    # Before torch comes in. Threads that wait for each other must sleep, not spin, where others
    # compute, too: a step of two threads beside two busy processes takes a third of the time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from oso_dp.campaign.control import clear
    from oso_dp.campaign.prepare import prepare
    from oso_dp.campaign.team import Minutes, give_way, lead

    if options.worker:
        give_way(options.nice)
    campaign, control = prepare(options, lambda line: print(line, flush=True))
    if not options.worker:
        clear(options.results)
        if options.processes > 1 or options.nice:
            lead(given, campaign, options.processes)
            return
    minutes = Minutes(campaign)
    if not options.worker:
        campaign.between = minutes
    with control.at_work():
        campaign.run()
    campaign.say(minutes.line())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OsoError(f"{message} (see {self.prog} --help)")


def _minutes(text: str) -> float:
    try:
        value = real_number(0, MAX_MINUTES)(text)
    except OptionError:
        value = 0.0
    if not value:
        raise OptionError(f"{text[:80]}: must be a number above 0, at most {MAX_MINUTES:g}")
    return value


_at_once = whole_number(1, MAX_AT_ONCE)


def _count_or_auto(text: str) -> int | None:
    try:
        return None if text == "auto" else whole_number(1, MAX_RUNS_AT_ONCE)(text)
    except OptionError as error:
        raise OptionError(str(error).replace("must be", "must be auto or", 1)) from None


_OPTIONS: dict[str, dict[str, Any]] = {
    "minutes": {
        "type": _minutes,
        "required": True,
        "help": "when to stop",
    },
    "results": {
        "type": path,
        "required": True,
        "metavar": "OUT",
        "help": "folder for the parts",
    },
    "have": {
        "type": path,
        "nargs": "+",
        "metavar": "FOLDER",
        "help": "results stores or other campaigns' folders; their runs are not trained again "
        "(the plans' folders, if they are results stores)",
    },
    "data": {
        "type": path,
        "default": Path("build/data"),
        "metavar": "FOLDER",
        "help": "prepared data sets, as .npz (%(default)s)",
    },
    "plan": {
        "type": path,
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
    "processes": {
        "type": _at_once,
        "default": 1,
        "metavar": "N",
        "help": "how many train side by side, each with its share of the CPU (%(default)s)",
    },
    "threads": {
        "type": _at_once,
        "metavar": "N",
        "help": "CPU threads of each process (the cores, divided by the processes)",
    },
    "nice": {
        "type": whole_number(0, 19),
        "default": 0,
        "metavar": "0..19",
        "help": "19 is the lowest priority (%(default)s)",
    },
    "priorities": {
        "type": path,
        "metavar": "FILE",
        "help": "what goes first, as config/priorities.toml says",
    },
    "skip-missing": {
        "action": "store_true",
        "help": "leave out data sets that are not in the folder of --data",
    },
    "worker": {
        "action": "store_true",
        "help": argparse.SUPPRESS,
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
        prog="python -m oso_dp.campaign",
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
