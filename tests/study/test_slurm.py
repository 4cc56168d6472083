"""What a cluster lacks is said before the first job is submitted, by the setting's name."""

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.slurm import Request, check_requests

ANSWERS = {
    "--format=%R|%G|%m": ["cpu|(null)|64000", "gpu|gpu:a100:4(S:0-1),nvme:1|512000+",
                          "gpu|gpu:2|256000", "old|gpu:k80:1,gpu:k20:2|32000"],
    "--format=%P": ["cpu*", "gpu", "old"],
    "format=account": ["lab", "root"],
}  # fmt: skip


def ask(*command: str) -> list[str]:
    return ANSWERS[command[-1]]


@pytest.mark.parametrize(
    "request_",
    [
        Request("train"),
        Request("train", "gpu", "lab", 4, 512_000),
        Request("train", "cpu", None, 0, 64_000),
        Request("train", None, "root", 0, 64_000),
        Request("train", "old", None, 3, 32_000),
    ],
)
def test_what_is_there_may_be_asked_for(request_: Request) -> None:
    check_requests([request_], ask)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            Request("train", "gpus"),
            "slurm_partition gpus: not known to this cluster; it has",
        ),
        (
            Request("train", None, "lub"),
            "slurm_account lub: not known to this cluster; it has",
        ),
        (Request("train", None, None, 1), "train:gpu 1: a node of partition cpu has at most 0"),
        (Request("train", "gpu", None, 5), "train:gpu 5: a node of partition gpu has at most 4"),
        (Request("train", "old", None, 4), "train:gpu 4: a node of partition old has at most 3"),
        (Request("report_page", None, None, 0, 64_001), "report_page:mem_mb 64001: a node of part"),
    ],
)
def test_what_is_not_there_is_named(request_: Request, said: str) -> None:
    with pytest.raises(OsoError) as error:
        check_requests([Request("collect"), request_], ask)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_a_cluster_that_does_not_answer_is_believed() -> None:
    """Without accounting there are no accounts to be known."""
    check_requests([Request("train", "any", "lab", 8, 10**9)], lambda *command: [])


def test_a_machine_without_slurm_is_named(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OsoError, match="executor slurm: there is no sbatch here"):
        check_requests([Request("train")])
