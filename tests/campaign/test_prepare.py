"""From a command's options to threads and priorities."""

import pytest
import torch

from oso_dp.campaign import prepare as prepare_module
from oso_dp.campaign.__main__ import main
from oso_dp.errors import OsoError

MINUTE = ["--minutes", "1"]


@pytest.mark.parametrize(
    ("more", "threads"),
    [
        ([], 6),
        (["--processes", "2"], 3),
        (["--processes", "4"], 1),
        (["--processes", "9"], 1),
        (["--processes", "2", "--threads", "5"], 5),
    ],
)
def test_each_process_has_its_share_of_the_cores(
    more, threads, folder, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def enough(*_: object) -> None:
        raise OsoError("enough")

    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    monkeypatch.setattr(prepare_module, "_cores", lambda: 6)
    monkeypatch.setattr(prepare_module, "all_work", enough)
    plan = ["--plan", str(folder / "plan.json"), "--device", "cpu"]
    assert main([*MINUTE, "--results", str(tmp_path / "out"), *plan, *more]) == 2
    assert seen == [threads]


@pytest.mark.parametrize(("more", "gave_way"), [([], []), (["--worker"], [7])])
def test_workers_give_way_and_their_leader_does_not(
    more, gave_way, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has to hear commands at once, and takes no time to speak of."""
    seen: list[int] = []

    def enough(*_: object) -> None:
        raise OsoError("enough")

    monkeypatch.setattr("oso_dp.campaign.team.give_way", seen.append)
    monkeypatch.setattr("oso_dp.campaign.prepare.prepare", enough)
    assert main([*MINUTE, "--results", str(tmp_path), "--nice", "7", *more]) == 2
    assert seen == gave_way
