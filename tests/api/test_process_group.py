"""Several processes that train one model: the guarantee of one."""

import os
import subprocess
import sys

import pytest
import scipy.stats
import torch
from tests.api.two_processes import EXAMPLES, SIGMA
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from oso_dp import OsoError
from oso_dp.privacy.process_group import ProcessGroup


@pytest.fixture(scope="module")
def results(tmp_path_factory, repo) -> dict[tuple[int, int], dict]:
    """By rank and number of processes."""
    folder = tmp_path_factory.mktemp("workers")
    ranks = [(0, 1), (0, 2), (1, 2)]
    script = str(repo / "tests/api/two_processes.py")
    inherited = os.environ.get("PYTHONPATH", "")  # a planted fault reaches all processes by it
    path = os.pathsep.join(filter(None, [str(repo), str(repo / "src"), inherited]))
    environment = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
    running = [
        subprocess.Popen(
            [sys.executable, script, str(folder), str(rank), str(count)], cwd=repo, env=environment
        )
        for rank, count in ranks
    ]
    try:
        assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    finally:  # of a group, the others wait for one that has failed
        for process in running:
            process.kill()
    return {
        (rank, count): torch.load(folder / f"{rank} of {count}", weights_only=True)
        for rank, count in ranks
    }


@pytest.fixture
def alone(results) -> dict:
    return results[0, 1]


@pytest.fixture
def both(results) -> list[dict]:
    return [results[0, 2], results[1, 2]]


def test_process_group_noiseless_matches_one_process(alone, both) -> None:
    for worker in both:
        found, expected = worker["without_noise"], alone["without_noise"]
        torch.testing.assert_close(found["flat"], expected["flat"], rtol=1e-4, atol=1e-5)
        assert found["ledger"] == expected["ledger"]


@pytest.mark.parametrize("training", ["whole", "adamw", "fresh", "stopped"])
def test_process_group_workers_get_equal_results(training, alone, both) -> None:
    first, second = ({**worker[training]} for worker in both)
    assert torch.equal(first.pop("flat"), second.pop("flat"))
    assert first == second
    if training != "fresh":
        assert first["run_id"] == alone[training]["run_id"]
    assert first["ledger"] == alone[training]["ledger"]
    assert first["epsilon"] == alone[training]["epsilon"]
    if training == "whole":
        assert first["scores"] == [0.5]


def test_process_group_killed_training_resumes(both) -> None:
    for worker in both:
        resumed, whole = {**worker["resumed"]}, {**worker["whole"]}
        assert torch.equal(resumed.pop("flat"), whole.pop("flat"))
        assert resumed == whole


def test_process_group_callback_stops_all(both) -> None:
    assert [worker["stopped"]["status"] for worker in both] == ["interrupted"] * 2


@pytest.mark.parametrize("source", ["seeded", "system"])
def test_process_group_noise_matches_one_process(source, alone, both) -> None:
    first, second = (worker[source] for worker in both)
    assert torch.equal(first["all"], second["all"])
    torch.testing.assert_close(first["all"], first["own"] + second["own"], rtol=1e-5, atol=1e-5)
    assert scipy.stats.kstest(first["all"].flatten() / SIGMA, "norm").pvalue > 1e-6
    assert first["all"].std().item() == pytest.approx(SIGMA, rel=0.015)  # 6 deviations
    for share in (first["own"], second["own"]):
        assert share.std().item() == pytest.approx(SIGMA / 2**0.5, rel=0.015)
    pair = torch.cat([first["own"], second["own"]])
    assert torch.corrcoef(pair)[0, 1].abs() < 0.02
    assert first["ledger"] == second["ledger"] == alone[source]["ledger"]


def test_process_group_batches_split_examples(alone, both) -> None:
    first, second = (worker["batches"] for worker in both)
    assert {index % 2 for batch in first for index in batch} == {0}
    assert {index % 2 for batch in second for index in batch} == {1}
    for drawn in (first, second, alone["batches"]):
        assert all(len(set(batch)) == len(batch) for batch in drawn)
        assert max(map(max, drawn)) >= 997
    sizes = [len(one) + len(other) for one, other in zip(first, second, strict=True)]
    assert sum(sizes) / len(sizes) == pytest.approx(499.5, abs=15)  # 6 deviations
    places = [{index // 2 for index in batch} for batch in (first[0], second[0])]
    assert 0.3 < len(places[0] & places[1]) / len(places[0]) < 0.7  # drawn independently


def test_process_group_differences_rejected(both) -> None:
    for worker in both:
        assert worker["other data"] == (
            f"examples: {EXAMPLES} on rank 0, {EXAMPLES + 1} on rank 1; must be equal in all "
            "processes of the group"
        )
        assert worker["other order"] == (
            "data: differ between the processes of the group; must be the same examples in the "
            "same order"
        )
        assert worker["other evaluations"].startswith("evaluate_every: 1 on rank 0, 2 on rank 1")
        assert worker["other options"].startswith("momentum: 0.1 on rank 0, 0.2 on rank 1; must")


@pytest.mark.parametrize("examples", [1, 2, 7, 400])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_process_group_indices_cover_dataset_once(examples: int, count: int) -> None:
    import numpy as np

    every = [
        index
        for rank in range(count)
        for index in ProcessGroup(rank, count).to_dataset_indices(
            np.arange(ProcessGroup(rank, count).count_records(examples))
        )
    ]
    assert sorted(every) == list(range(examples))


def test_train_private_distributed_module_rejected(train) -> None:
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    with pytest.raises(OsoError, match="model: DistributedDataParallel; pass the module that it w"):
        train(model=wrapped)


def test_search_private_in_group_rejected(search, monkeypatch) -> None:
    monkeypatch.setattr(ProcessGroup, "current", lambda: ProcessGroup(0, 2))
    with pytest.raises(
        OsoError, match=r"search_private: not supported in a torch\.distributed group"
    ):
        search()
