"""What some tests use where it is there: Debian's packages, installed on the spot as root."""

import os
import shutil
import subprocess


def apt_install(*packages: str) -> None:
    """Install the packages, where that is possible; who needs them looks whether they came."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", *packages]):
        subprocess.run(["apt-get", "-qq", *command], env=quiet, check=False,
                       stdout=subprocess.DEVNULL)  # fmt: skip
