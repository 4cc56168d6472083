"""What a cluster lacks is said before the first job is submitted, by the setting's name."""

import pytest

from oso_dp.errors import OsoError
from oso_dp.snakemake_support.slurm import Request, check_requests

ANSWERS = {
    "--format=%R|%G|%m|%l": ["cpu|(null)|64000|infinite",
                             "gpu|gpu:a100:4(S:0-1),nvme:1|512000+|2-12:30:00",
                             "gpu|gpu:2|256000|2-12:30:00",
                             "old|gpu:k80:1,gpu:k20:2|32000|30:00"],
    "--format=%P": ["cpu*", "gpu", "old"],
    "format=account": ["lab", "root", "1234"],
}  # fmt: skip


def ask(*command: str) -> list[str]:
    return ANSWERS[command[-1]]


@pytest.mark.parametrize(
    "request_",
    [
        Request("train", "gpu", "lab", 4, 512_000),
        Request("train", "old", None, 3, 32_000, 30),
        Request("train", "gpu", None, 0, 0, 2 * 24 * 60 + 12 * 60 + 30),
        Request("train", "old,gpu", "Lab,root", 4),
        Request("train", None, 1234),
        Request("train", "cpu,gpu", minutes=10**6),  # one of them has no limit
    ],
)
def test_check_requests_available_resources_accepted(request_: Request) -> None:
    check_requests([request_], ask)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("train", "gpus"), "slurm_partition: gpus; must be one of"),
        (Request("train", None, "lub"), "slurm_account: lub; must be one of"),
        (Request("train", "gpu", None, 5), "train:gpu: 5; must be <= 4 on partition gpu"),
        (Request("train", "old", None, 4), "train:gpu: 4; must be <= 3 on partition old"),
        (Request("train", "gpu", minutes=3631), "train:runtime: 3631; must be <= "),
        (Request("report_page", None, None, 0, 64_001), "report_page:mem_mb: 64001; must be"),
    ],
)
def test_check_requests_unavailable_resources_rejected(request_: Request, said: str) -> None:
    with pytest.raises(OsoError) as error:
        check_requests([Request("collect"), request_], ask)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_check_requests_silent_cluster_accepted() -> None:
    check_requests([Request("train", "any", "lab", 8, 10**9)], lambda *command: [])
