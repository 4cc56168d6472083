"""From a command's options to threads and priorities."""

from contextlib import nullcontext
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("more", "led"),
    [
        ([], None),
        (["--processes", "2"], 2),
        (["--nice", "7"], 1),
        (["--nice", "7", "--processes", "3"], 3),
        (["--nice", "7", "--worker"], None),
    ],
)
def test_whoever_gives_way_has_a_leader(more, led, tmp_path, monkeypatch) -> None:
    """Only workers give way: one process is a worker, too, where it shall."""
    seen: list[object] = []
    campaign = SimpleNamespace(run=lambda: seen.append(None), say=lambda line: None)
    control = SimpleNamespace(at_work=nullcontext)
    minutes = SimpleNamespace(line=lambda: "")
    for name, instead in (
        ("prepare.prepare", lambda *_: (campaign, control)),
        ("team.lead", lambda given, made, processes: seen.append(processes)),
        ("team.give_way", lambda nice: None),
        ("team.Minutes", lambda *_: minutes),
    ):
        monkeypatch.setattr(f"oso_dp.campaign.{name}", instead)
    assert main([*MINUTE, "--results", str(tmp_path), *more]) == 0
    assert seen == [led]


@pytest.mark.parametrize(
    ("model", "given", "device", "runs"),
    [
        ("cnn", None, "cpu", 1),
        ("autoencoder", None, "cpu", 1),
        ("own", None, "cpu", 1),
        ("bag_of_words", None, "cpu", 8),
        ("bag_of_words_25", None, "cpu", 8),
        ("cnn", None, "cuda", 64),
        ("bag_of_words", None, "cuda", 64),
        ("cnn", 3, "cuda", 3),
        ("bag_of_words", 3, "cpu", 3),
    ],
)
def test_how_many_train_side_by_side_depends_on_network_and_device(
    model, given, device, runs
) -> None:
    assert prepare_module._at_once(given, device)(model) == runs
