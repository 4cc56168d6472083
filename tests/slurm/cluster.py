"""A Slurm of one node on this machine, with two pretend GPUs: started, used, stopped.

Everything lies in `folder`, but for a link to its slurm.conf where Slurm looks for one, which goes
when Slurm is stopped: a job's own steps know no variable that names it. Needs root, and what
`install()` brings (Debian's packages).
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import apt_install

CONF, FILES = Path("/etc/slurm"), ("slurm.conf", "gres.conf")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun")

_CONF = """\
ClusterName=oso
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={other_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# Without systemd and cgroups: memory is watched, and enforced by a kill.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=2
AccountingStorageType=accounting_storage/none
ReturnToService=2
MinJobAge=300
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=everything Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
_GRES = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"


def missing() -> str | None:
    """Why there can be no Slurm here, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root here"
    if there := [str(CONF / name) for name in FILES if (CONF / name).exists()]:
        return f"a Slurm is set up here already: {', '.join(there)}"
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def install() -> None:
    """Debian's packages, where they are absent and apt is there; never over a Slurm set up here."""
    absent = any(shutil.which(name, path=_path()) is None for name in PROGRAMS)
    set_up = any((CONF / name).exists() for name in FILES)
    if absent and not set_up:
        apt_install("slurm-wlm", "munge")


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands reach it. RuntimeError where it does not start."""
    host = socket.gethostname().split(".")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    port, other_port = _free_port(), _free_port()
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(
        _CONF.format(
            host=host,
            port=port,
            other_port=other_port,
            folder=folder,
            memory=memory - 500,
            cpus=len(os.sched_getaffinity(0)),
        )
    )
    (folder / "gres.conf").write_text(_GRES)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    environment = {"PATH": _path()}
    everything = os.environ | environment
    daemons = []
    CONF.mkdir(exist_ok=True)
    links = [CONF / name for name in FILES]
    try:
        for link in links:
            if link.is_symlink():  # to a folder that is gone
                link.unlink()
            link.symlink_to(folder / link.name)
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}",
             f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
             f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"],
            ["slurmctld", "-D", "-i"],
            ["slurmd", "-D", "-N", host],
        ):  # fmt: skip
            with (folder / f"{command[0]}.out").open("wb") as log:
                daemons.append(subprocess.Popen(command, env=everything, stdout=log, stderr=log))
            time.sleep(0.5)
        _wait_for_a_job(everything, folder)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for link in links:
            link.unlink(missing_ok=True)


def _wait_for_a_job(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done = subprocess.run(["srun", "-n1", "--immediate=5", "true"], env=environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode == 0:
            return
        time.sleep(0.5)
    logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in folder.glob("*.log"))
    raise RuntimeError(f"Slurm does not start: {done.stderr}\n{logs}")


def _path() -> str:
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
