"""From the command's options to a campaign that is ready to run."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import oso_dp
from oso_dp.campaign.campaign import Campaign
from oso_dp.campaign.control import Control
from oso_dp.campaign.data_files import DataFiles
from oso_dp.campaign.order import Work, all_work
from oso_dp.campaign.parts import Parts, refuse_store, stores_in
from oso_dp.campaign.priorities import read_priorities
from oso_dp.errors import OsoError
from oso_dp.gradients import find_precision, slow_reason
from oso_dp.results.other_search import refuse_other_search_among
from oso_dp.results.read import is_store
from oso_dp.results.spent import refuse_spent
from oso_dp.study.own_data import check_one_budget
from oso_dp.study.paper_points import papers_best_runs
from oso_dp.study.plan import Plan, read_plan
from oso_dp.training.provenance import device_name

# `auto`, on a GPU to begin with: halved where memory does not suffice. On a CPU only networks of
# small layers gain from company.
GPU_AT_ONCE = 64
SMALL_AT_ONCE = {"bag_of_words": 8, "bag_of_words_25": 8}


def prepare(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[Campaign, Control]:
    """The campaign, with its first line said; its deadline counts from now, without pauses."""
    plans = [read_plan(path) for path in options.plan]
    check_one_budget([cohort for plan in plans for cohort in plan.cohorts])
    _check_randomness(plans)
    device = _device(options)
    everything = all_work(plans, options.only)
    data = DataFiles(options.data, everything)
    if options.skip_missing:
        everything = data.only_there(everything, say)
    # A mistake in the file is one of the plans'; what is left out today selects nothing, rightly.
    priorities = (
        [] if options.priorities is None else read_priorities(options.priorities, all_work(plans))
    )
    stores = {path.parent for path in options.plan}
    default = sorted(store for store in stores if is_store(store))
    have = default if options.have is None else options.have
    refuse_store(options.results)
    _refuse_other_searches(plans, everything, (options.results, *have))
    parts = Parts(options.results, have)
    control = Control(parts.progress)
    campaign = Campaign(
        everything,
        {
            run_id
            for plan in plans
            for cohort in plan.cohorts
            for run_id in papers_best_runs(cohort)
        },
        parts,
        data.load,
        deadline=control.clock() + 60 * options.minutes,
        device=device,
        runs_at_once=_at_once(options.runs_at_once, device),
        priorities=priorities,
        later=_slow_precisions(everything, device, say),
        clock=control.clock,
        look=_look(control, options.worker),
        say=say,
    )
    # With --skip-missing all of them are missing, so that leaving some out leaves nothing.
    leave_out = ", or leave the data set out with --only or --skip-missing"
    instead = "; there are no others to go on with" if options.skip_missing else leave_out
    data.refuse_missing((cohort.data_file for cohort, _ in campaign.left), instead)
    names = ", ".join(plan.name for plan in plans)
    say(
        f"{device_name(device)}, {options.minutes:g} minutes: "
        f"{sum(runs for _, runs in campaign.left):,} runs of {names} to do"
    )
    return campaign, control


def _device(options: argparse.Namespace) -> str:
    """cpu or cuda; a process on the CPU gets its share of the cores."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise OsoError("--device cuda: no CUDA device is visible here; allowed is cpu")
    device = str(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device == "cpu":
        torch.set_num_threads(options.threads or max(1, _cores() // options.processes))
    return device


def _refuse_other_searches(
    plans: Sequence[Plan], everything: Sequence[Work], folders: Sequence[Path]
) -> None:
    """OsoError where a folder holds another search over this work's data, or has spent them."""
    for cohort in (work.cohort for work in everything):
        stores_of = {folder: stores_in(folder, cohort.name) for folder in folders}
        refuse_other_search_among(
            stores_of, [cohort], "other folders under `--results` and `--have`"
        )
    own, *_ = folders
    places = {
        store: f"another folder under `{'--results' if folder == own else '--have'}`"
        for folder in folders
        for store in stores_in(folder)
    }
    for plan in plans:
        refuse_spent(places, plan.cohorts)


def _slow_precisions(
    everything: Sequence[Work], device: str, say: Callable[[str], None]
) -> set[str]:
    """What this device has no instructions for comes last, and is said."""
    reasons = {
        name: slow_reason(find_precision(name, torch.device(device)), torch.device(device))
        for name in {work.cohort.precision for work in everything}
    }
    slow = {name for name, reason in reasons.items() if reason}
    for name in sorted(slow):
        say(f"{reasons[name]}: such runs come last")
    return slow


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _at_once(given: int | None, device: str) -> Callable[[str], int]:
    def at_once(model: str) -> int:
        return given or (GPU_AT_ONCE if device == "cuda" else SMALL_AT_ONCE.get(model, 1))

    return at_once


def _look(control: Control, led: bool) -> Callable[[], None]:
    """What to look after at each step: commands, the leader if there is one, the code."""
    source, leader = Path(oso_dp.__file__), os.getppid()

    def look() -> None:
        control.look()
        if led and os.getppid() != leader:
            raise OsoError("the process that started this one is gone")
        if not source.exists():
            raise OsoError(f"{source}: this checkout is gone; complete runs are kept, start again")

    return look


def _check_randomness(plans: Sequence[Plan]) -> None:
    if any(cohort.randomness == "system" for plan in plans for cohort in plan.cohorts):
        try:
            import scipy.special  # noqa: F401
        except ImportError:
            raise OsoError("randomness system: needs scipy, which is not installed") from None
