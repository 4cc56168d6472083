"""A GPU for each job: none is taken twice, one that is freed or whose job died is taken again."""

import subprocess
import sys
import threading
import time

import pytest

from oso_dp.errors import OsoError
from oso_dp.training.gpu import first_free, own_gpu

NAMES = ["GPU-a", "GPU-b"]


# Takes a GPU, says which, and keeps it.
JOB = """
import sys, time
from pathlib import Path
from oso_dp.training.gpu import first_free
with first_free({names!r}, Path(sys.argv[1])) as index:
    print(index, flush=True)
    time.sleep(60)
"""


def test_jobs_side_by_side_take_one_each_and_a_third_waits(tmp_path, capsys) -> None:
    with first_free(NAMES, tmp_path) as first, first_free(NAMES, tmp_path) as second:
        assert {first, second} == {0, 1}
        got: list[int] = []

        def third() -> None:
            with first_free(NAMES, tmp_path, interval=0.01) as index:
                got.append(index)

        waiting = threading.Thread(target=third)
        waiting.start()
        time.sleep(0.3)
        assert got == []
    waiting.join(10)
    assert len(got) == 1
    assert capsys.readouterr().err == "waiting for one of 2 GPUs\n"


def test_a_killed_job_leaves_its_gpu(tmp_path) -> None:
    command = [sys.executable, "-c", JOB.format(names=NAMES), str(tmp_path)]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in NAMES]
    held = [int(job.stdout.readline()) for job in jobs]
    assert sorted(held) == [0, 1]
    jobs[0].kill()
    jobs[0].communicate()
    with first_free(NAMES, tmp_path, interval=0.01) as index:
        assert index == held[0]
    jobs[1].kill()
    jobs[1].communicate()


def test_an_error_leaves_the_gpu(tmp_path) -> None:
    with pytest.raises(ValueError, match="broken"), first_free(NAMES[:1], tmp_path):
        raise ValueError("broken")
    with first_free(NAMES[:1], tmp_path) as index:
        assert index == 0


def test_a_scheduler_s_choice_is_the_only_one_seen(monkeypatch, tmp_path) -> None:
    class Properties:
        uuid = "1234"

    chosen: list[int] = []
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda index: Properties,
        "set_device": chosen.append,
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", value)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with own_gpu("cuda") as device:
        assert device == "cuda:0"
        assert [path.name for path in tmp_path.rglob("*.lock")] == ["gpu-1234.lock"]
    assert chosen == [0]


def test_the_cpu_needs_none_and_a_missing_gpu_is_said(monkeypatch) -> None:
    with own_gpu("cpu") as device:
        assert device == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(OsoError, match="device cuda: no CUDA device is visible"), own_gpu("cuda"):
        pass
