"""Whether a Slurm cluster has what a study's jobs ask for, before the first is submitted."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oso_dp.errors import OsoError

# A Slurm command with its options, to the lines that it prints; none where it fails, and then
# nothing is held against its answer.
Ask = Callable[..., list[str]]


@dataclass(frozen=True)
class Request:
    """What jobs of a rule ask for; a partition or account that is None is the cluster's default."""

    rule: str
    partition: str | None = None
    account: str | None = None
    gpus: int = 0
    memory_mb: int = 0


@dataclass(frozen=True)
class Node:
    """A kind of node: its partition, and what the largest job on it may have."""

    partition: str
    gpus: int
    memory_mb: int


def check_requests(requests: Iterable[Request], ask: Ask | None = None) -> None:
    """OsoError names the first setting that the cluster does not have."""
    if ask is None:
        if shutil.which("sbatch") is None:
            raise OsoError(
                "executor slurm: there is no sbatch here; start from a node that can submit jobs"
            )
        ask = _ask
    nodes = [_node(line) for line in ask("sinfo", "--noheader", "--format=%R|%G|%m")]
    names = ask("sinfo", "--noheader", "--format=%P")
    default = next((name.rstrip("*") for name in names if name.endswith("*")), None)
    accounts = {*ask("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account")}
    for request in sorted(set(requests), key=lambda request: request.rule):
        _check_name("slurm_partition", request.partition, {node.partition for node in nodes})
        _check_name("slurm_account", request.account, accounts)
        partition = request.partition or default
        there = [node for node in nodes if node.partition == partition]
        for name, wanted, offered in (
            ("gpu", request.gpus, [node.gpus for node in there]),
            ("mem_mb", request.memory_mb, [node.memory_mb for node in there]),
        ):
            if offered and wanted > max(offered):
                raise OsoError(
                    f"{request.rule}:{name} {wanted}: a node of partition {partition} has at most "
                    f"{max(offered)}; name another slurm_partition, or ask for less "
                    f"(--set-resources {request.rule}:{name}={max(offered)})"
                )


def _check_name(setting: str, name: str | None, known: set[str]) -> None:
    if name and known and name not in known:
        raise OsoError(
            f"{setting} {name}: not known to this cluster; it has {', '.join(sorted(known))}"
        )


def _node(line: str) -> Node:
    """From partition|gres|memory, as in gpu|gpu:a100:4(S:0-1),nvme:1|512000+."""
    partition, gres, memory = line.split("|")
    counts = re.findall(r"gpu(?::[^:,(]+)*?:(\d+)(?=[,(]|$)", gres)
    return Node(partition, sum(map(int, counts)), int(memory.rstrip("+")))


def _ask(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
