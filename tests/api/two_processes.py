"""One of several processes that train together (gloo): python two_processes.py FOLDER RANK COUNT.

Writes what each scenario gives to FOLDER/RANK of COUNT.
"""

import contextlib
import sys
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from oso_dp import OsoError, train_private
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.rng_sources import get_source
from oso_dp.training.loop import Training

EXAMPLES, SIGMA = 401, 1.7


def data(examples: int = EXAMPLES):
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(examples, 6, generator=random)
    return inputs, (inputs.sum(dim=1) > 0).long()


def train(given=None, **options):
    torch.manual_seed(ProcessGroup.current().rank)  # rank 0's parameters count
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    usual = {"epsilon": 3.0, "delta": 1e-5, "epochs": 2, "batch_size": 50, "method": "online"}
    usual |= {"randomness": "seeded", "seed": 1, "progress": False}
    loss = nn.CrossEntropyLoss(reduction="none")
    return train_private(model, loss, given or data(), **{**usual, **options})


def summary(trained) -> dict:
    flat = torch.cat([p.detach().flatten() for p in trained.model.parameters()])
    return {
        "flat": flat,
        "status": trained.status,
        "ledger": trained.ledger.to_json(),
        "epsilon": trained.epsilon,
        "scores": trained.history.score,
        "run_id": trained.run_id,
    }


def refusal(call) -> str:
    try:
        call()
    except OsoError as error:
        return str(error)
    return ""


def without_noise() -> dict:
    """All examples in each batch."""

    def nothing(self, source, run_ids, step, totals, noise):
        return totals

    with patch.object(BatchRNG, "_add_seeded_on_host", nothing):
        return summary(train(batch_size=EXAMPLES, epochs=6))


class Zeros:
    def __init__(self, shape) -> None:
        self.shape = shape

    def norms(self):
        return torch.zeros(*self.shape)

    def weighted_sums(self, weights, layers=None):
        return torch.zeros(*weights.shape[:2], 100_000)


def noise(source: str) -> dict:
    """What is added to sums of zero, by this worker and by all."""
    mechanism = Mechanism(
        ["run"], 1000, 100, SIGMA, get_source(source), group=ProcessGroup.current()
    )
    own: list[torch.Tensor] = []
    all_reduce = ProcessGroup.all_reduce

    def noted(self, totals):
        own.extend(total.clone() for total in totals)
        return all_reduce(self, totals)

    with patch.object(ProcessGroup, "all_reduce", noted):
        (answer,) = mechanism.release(
            slice(0, 1), 1, [ClippedGradient(SIGMA, torch.ones(1))],
            lambda runs, batch: Zeros(batch.shape),
        ).values()  # fmt: skip
    return {"own": own[0], "all": answer * 100, "ledger": mechanism.ledgers[0].to_json()}


def batches() -> list[list[int]]:
    draws = BatchRNG(
        get_source("seeded"), Mechanism(["run"], 1000, 500).sampling, 999, torch.device("cpu"),
        ProcessGroup.current(),
    )  # fmt: skip
    drawn = [draws.batches(["run"], step) for step in range(1, 41)]
    return [indices[0][present[0]].tolist() for indices, present in drawn]


class KilledError(Exception):
    pass


def killed_and_resumed(path: Path) -> dict:
    """Killed in all workers at once, at a step between two checkpoints."""
    options = {"checkpoint_every": 4, "evaluate": lambda model: 0.5, "checkpoint": path}
    if ProcessGroup.current().rank > 0:  # as scripts do
        del options["checkpoint"], options["checkpoint_every"]
    take_step = Training.take_step

    def kill(self) -> None:
        if self.state.step == 7:
            raise KilledError
        take_step(self)

    with contextlib.suppress(KilledError), patch.object(Training, "take_step", kill):
        train(**options)
    return summary(train(**options))


def main(folder: Path, rank: int, count: int) -> dict:
    found = {
        "resumed": killed_and_resumed(folder / f"state of {count}"),
        "without_noise": without_noise(),
        "seeded": noise("seeded"),
        "system": noise("system"),
        "batches": batches(),
        "whole": summary(train(evaluate=lambda model: 0.5)),
        "adamw": summary(
            train(optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01))
        ),
        "fresh": summary(train(randomness="system", seed=None)),
        "stopped": summary(train(callbacks=[lambda one: one.step == 4], evaluate_every=2)),
    }
    if count > 1:
        found["other data"] = refusal(lambda: train(data(EXAMPLES + rank)))
        found["other order"] = refusal(lambda: train(tuple(one.roll(rank, 0) for one in data())))
        found["other evaluations"] = refusal(lambda: train(evaluate_every=rank + 1))
        found["other options"] = refusal(lambda: train(momentum=0.1 * (rank + 1)))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, number, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if workers > 1:
        store = dist.FileStore(str(place / "store"), workers)
        dist.init_process_group("gloo", store=store, rank=number, world_size=workers)
    torch.save(main(place, number, workers), place / f"{number} of {workers}")
    if workers > 1:
        dist.destroy_process_group()
