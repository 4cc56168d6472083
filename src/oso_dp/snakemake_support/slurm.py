"""Whether a Slurm cluster has what a study's jobs ask for, before the first is submitted.

Slurm itself would refuse some of it job by job, and let a job that asks for too much time wait for
ever.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oso_dp.errors import OsoError

# A Slurm command with its options, to the lines that it prints; none where it fails, and then
# nothing is held against its answer.
Query = Callable[..., list[str]]


@dataclass(frozen=True)
class Request:
    """What jobs of a rule ask for; a partition or account that is None is the cluster's default.

    Names may be several, with commas between them; minutes are of wall time.
    """

    rule: str
    partition: str | int | None = None
    account: str | int | None = None
    gpus: int = 0
    memory_mb: int = 0
    minutes: int = 0


@dataclass(frozen=True)
class Node:
    """A kind of node: its partition, and what the largest job on it may have; None: no limit."""

    partition: str
    gpus: int
    memory_mb: int
    minutes: int | None


def check_requests(requests: Iterable[Request], ask: Query | None = None) -> None:
    """OsoError names the first setting that the cluster does not have."""
    if ask is None:
        if shutil.which("sbatch") is None:
            raise OsoError(
                "executor slurm: there is no sbatch here; start from a node that can submit jobs"
            )
        ask = _query
    every = ("sinfo", "--all", "--exact", "--noheader")
    nodes = [_node(line) for line in ask(*every, "--format=%R|%G|%m|%l")]
    names = ask(*every, "--format=%P")
    default = next((name.rstrip("*") for name in names if name.endswith("*")), None)
    accounts = ask("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account")
    for request in sorted(set(requests), key=lambda request: request.rule):
        partitions = _names(request.partition)
        _check_names("slurm_partition", partitions, {node.partition for node in nodes})
        _check_names("slurm_account", _names(request.account, fold=True), _folded(accounts))
        wanted = partitions or {*filter(None, [default])}
        there = [node for node in nodes if node.partition in wanted]
        _check_limits(request, there)


def _check_limits(request: Request, there: list[Node]) -> None:
    for name, wanted, offered in (
        ("gpu", request.gpus, [node.gpus for node in there]),
        ("mem_mb", request.memory_mb, [node.memory_mb for node in there]),
        ("runtime", request.minutes, [node.minutes for node in there]),
    ):
        limits = [limit for limit in offered if limit is not None]
        if limits and len(limits) == len(offered) and wanted > max(limits):
            where = ", ".join(sorted({node.partition for node in there}))
            raise OsoError(
                f"{request.rule}:{name} {wanted}: partition {where} gives a job at most "
                f"{max(limits)}; name another slurm_partition, ask for less "
                f"(--set-resources {request.rule}:{name}={max(limits)})"
                + (", or have fewer runs_per_job" if name == "runtime" else "")
            )


def _check_names(setting: str, names: set[str], known: set[str]) -> None:
    if known and (strange := names - known):
        raise OsoError(
            f"{setting} {min(strange)}: not known to this cluster; it has "
            f"{', '.join(sorted(known))}"
        )


def _names(given: str | int | None, fold: bool = False) -> set[str]:
    names = [] if given is None else str(given).split(",")
    return _folded(names) if fold else {*names}


def _folded(names: Iterable[str]) -> set[str]:
    """Slurm's accounts have no capitals."""
    return {name.casefold() for name in names}


def _node(line: str) -> Node:
    """From partition|gres|memory|time, as in gpu|gpu:a100:4(S:0-1),nvme:1|512000|2-00:00:00."""
    partition, gres, memory, limit = line.split("|")
    counts = re.findall(r"gpu(?::[^:,(]+)*?:(\d+)(?=[,(]|$)", gres)
    return Node(partition, sum(map(int, counts)), int(memory.rstrip("+")), _minutes(limit))


def _minutes(limit: str) -> int | None:
    """Of [days-][hours:]minutes:seconds; None where there is no limit that could be read."""
    parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):\d+", limit)
    if parts is None:
        return None
    days, hours, minutes = (int(part or 0) for part in parts.groups())
    return (24 * days + hours) * 60 + minutes


def _query(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
