"""A GPU for each job: none is taken twice, one that is freed or whose job died is taken again."""

import os
import subprocess
import sys
import threading
import time

import pytest

from oso_dp.cli.gpu import acquire_first, reserve_gpu, visible_devices

NAMES = ["GPU-a", "GPU-b"]


# Takes a GPU, says which, and keeps it.
JOB = """
import sys, time
from pathlib import Path
from oso_dp.cli.gpu import acquire_first
with acquire_first({names!r}, Path(sys.argv[1])) as index:
    print(index, flush=True)
    time.sleep(60)
"""


def test_acquire_first_all_taken_waits(tmp_path, capsys) -> None:
    with acquire_first(NAMES, tmp_path) as first, acquire_first(NAMES, tmp_path) as second:
        assert {first, second} == {0, 1}
        got: list[int] = []

        def third() -> None:
            with acquire_first(NAMES, tmp_path, interval=0.01) as index:
                got.append(index)

        waiting = threading.Thread(target=third)
        waiting.start()
        time.sleep(0.3)
        assert got == []
    waiting.join(10)
    assert len(got) == 1
    assert capsys.readouterr().err == "waiting for one of 2 GPUs\n"


def test_acquire_first_killed_job_frees_gpu(tmp_path) -> None:
    command = [sys.executable, "-c", JOB.format(names=NAMES), str(tmp_path)]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in NAMES]
    held = [int(job.stdout.readline()) for job in jobs]
    assert sorted(held) == [0, 1]
    jobs[0].kill()
    jobs[0].communicate()
    with acquire_first(NAMES, tmp_path, interval=0.01) as index:
        assert index == held[0]
    jobs[1].kill()
    jobs[1].communicate()


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, {"0": "GPU-a", "1": "GPU-b"}),
        ("1", {"1": "GPU-b"}),
        ("1,0", {"1": "GPU-b", "0": "GPU-a"}),
        ("GPU-b", {"GPU-b": "GPU-b"}),
        ("", {}),
    ],
)
def test_visible_devices_scheduler_choice_kept(
    chosen: str | None, expected: dict[str, str]
) -> None:
    assert visible_devices(NAMES, chosen) == expected


def test_reserve_gpu_job_sees_one_gpu(monkeypatch, tmp_path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'GPU-a\\nGPU-b\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with reserve_gpu("cuda"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        with reserve_gpu("cuda"):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_reserve_gpu_absent_has_no_effect(monkeypatch, tmp_path, device: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with reserve_gpu(device):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert list(tmp_path.iterdir()) == []
