"""Check the resource requests of a study's jobs against a Slurm cluster, before any is submitted.

Slurm itself would reject some requests one job at a time, and leave a job with too much wall time
pending for ever.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oso_dp.errors import OsoError

# Runs a Slurm command and returns its output lines; no lines if it fails, which disables the checks
# that need them.
Query = Callable[..., list[str]]


@dataclass(frozen=True)
class Request:
    """Resources that jobs of a rule request.

    partition, account: None for the cluster's default; may be several, separated by commas.
    minutes: wall time.
    """

    rule: str
    partition: str | int | None = None
    account: str | int | None = None
    gpus: int = 0
    memory_mb: int = 0
    minutes: int = 0


@dataclass(frozen=True)
class Node:
    """A type of node: its partition and the limits of a job on it; minutes None: unlimited."""

    partition: str
    gpus: int
    memory_mb: int
    minutes: int | None


def check_requests(requests: Iterable[Request], query: Query | None = None) -> None:
    """OsoError names the first request that the cluster cannot satisfy."""
    if query is None:
        if shutil.which("sbatch") is None:
            raise OsoError(
                "--executor: slurm; sbatch not found; run Snakemake on a node that can submit jobs"
            )
        query = _run_query
    sinfo = ("sinfo", "--all", "--exact", "--noheader")
    nodes = [_node(line) for line in query(*sinfo, "--format=%R|%G|%m|%l")]
    names = query(*sinfo, "--format=%P")
    default = next((name.rstrip("*") for name in names if name.endswith("*")), None)
    accounts = query("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account")
    for request in sorted(set(requests), key=lambda request: request.rule):
        partitions = _names(request.partition)
        _check_names("slurm_partition", partitions, {node.partition for node in nodes})
        _check_names("slurm_account", _names(request.account, fold=True), _folded(accounts))
        wanted = partitions or {*filter(None, [default])}
        allowed = [node for node in nodes if node.partition in wanted]
        _check_limits(request, allowed)


def _check_limits(request: Request, nodes: list[Node]) -> None:
    for name, wanted, offered in (
        ("gpu", request.gpus, [node.gpus for node in nodes]),
        ("mem_mb", request.memory_mb, [node.memory_mb for node in nodes]),
        ("runtime", request.minutes, [node.minutes for node in nodes]),
    ):
        limits = [limit for limit in offered if limit is not None]
        if limits and len(limits) == len(offered) and wanted > max(limits):
            where = ", ".join(sorted({node.partition for node in nodes}))
            raise OsoError(
                f"{request.rule}:{name}: {wanted}; must be <= {max(limits)} on partition {where}; "
                "set another slurm_partition, or "
                f"--set-resources {request.rule}:{name}={max(limits)}"
                + (", or reduce runs_per_job" if name == "runtime" else "")
            )


def _check_names(key: str, names: set[str], known: set[str]) -> None:
    if known and (unknown := names - known):
        raise OsoError(
            f"{key}: {min(unknown)}; must be one of {', '.join(sorted(known))} on this cluster"
        )


def _names(given: str | int | None, fold: bool = False) -> set[str]:
    names = [] if given is None else str(given).split(",")
    return _folded(names) if fold else {*names}


def _folded(names: Iterable[str]) -> set[str]:
    """Slurm account names are case-insensitive."""
    return {name.casefold() for name in names}


def _node(line: str) -> Node:
    """Parse partition|gres|memory|time, as in gpu|gpu:a100:4(S:0-1),nvme:1|512000|2-00:00:00."""
    partition, gres, memory, limit = line.split("|")
    counts = re.findall(r"gpu(?::[^:,(]+)*?:(\d+)(?=[,(]|$)", gres)
    return Node(partition, sum(map(int, counts)), int(memory.rstrip("+")), _minutes(limit))


def _minutes(limit: str) -> int | None:
    """Parse [days-][hours:]minutes:seconds; None for no limit or another format."""
    parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):\d+", limit)
    if parts is None:
        return None
    days, hours, minutes = (int(part or 0) for part in parts.groups())
    return (24 * days + hours) * 60 + minutes


def _run_query(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
