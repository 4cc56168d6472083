"""Teachers: one network for each part of the private data, of whom only votes leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.data.catalogue import OOV_WORDS, dataset_info
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError
from oso_dp.pate.config import PateConfig
from oso_dp.pate.networks import predict, train_network
from oso_dp.pate.partition import assign_parts, check_no_shared_rows
from oso_dp.pate.record_files import read_record, write_record
from oso_dp.study.data_options import make_data_options

# Of the test examples: public inputs, and those that evaluate students. As `evaluate.SPLITS`.
POOL, TEST = slice(0, None, 2), slice(1, None, 2)
KIND = "votes"


def load_dataset(config: PateConfig, dataset: str, path: Path) -> Arrays:
    """The prepared data; OsoError for others, and for a data set that the study does not have."""
    options = make_data_options(config.find_dataset(dataset).model, OOV_WORDS[0])
    return load_prepared(path, dataset, options)


@dataclass(frozen=True)
class Ballot:
    """Votes of teachers on the pool.

    votes: int64 [pool, classes]. facts: what they are of, and which teachers voted.
    """

    votes: npt.NDArray[np.int64]
    facts: dict[str, Any]


def vote(
    config: PateConfig, dataset: str, teachers: int, seed: int, arrays: Arrays, shard: int = 0
) -> Ballot:
    """The votes of one shard of the teachers, each trained on a part of the training examples.

    OsoError for a data set, a number of teachers, a seed or a shard that the study does not have.
    """
    section = config.find_dataset(dataset)
    for name, value, allowed in (
        ("teachers", teachers, config.teachers.count),
        ("seed", seed, config.seeds),
        ("shard", shard, range(config.teachers.shards)),
    ):
        if value not in allowed:
            raise OsoError(f"{name}: {value}; must be one of {', '.join(map(str, allowed))}")
    pool = arrays.test_inputs[POOL]
    check_no_shared_rows(arrays.train_inputs, pool, "pool")
    parts = assign_parts(arrays.train_inputs, arrays.train_targets, teachers, seed)
    inputs, public = torch.from_numpy(arrays.train_inputs), torch.from_numpy(pool)
    targets = torch.from_numpy(arrays.train_targets)
    votes = np.zeros((len(pool), dataset_info(dataset).classes), dtype=np.int64)
    numbers = range(teachers)[shard :: config.teachers.shards]
    for number in numbers:
        rows = torch.from_numpy(np.flatnonzero(parts == number))
        name = f"teacher {number} of {teachers}, {dataset}, seed {seed}"
        training = config.teachers.make_training(dataset)
        network = train_network(section.model, inputs[rows], targets[rows], training, name)
        votes[np.arange(len(pool)), predict(network, public).argmax(dim=1).numpy()] += 1
    facts = _facts(config, dataset, teachers, seed, arrays)
    return Ballot(votes, {**facts, "numbers": [*numbers]})


def _facts(
    config: PateConfig, dataset: str, teachers: int, seed: int, arrays: Arrays
) -> dict[str, Any]:
    """All that decides the votes."""
    training = config.teachers.model_dump(exclude={"count", "shards"})
    section = config.find_dataset(dataset)
    of = {"dataset": dataset, "model": section.model, "teachers": teachers, "seed": seed}
    return {**of, **training, "data": arrays.digest}


def write_votes(path: Path, ballot: Ballot) -> None:
    write_record(path, KIND, {"votes": ballot.votes}, ballot.facts)


def read_votes(
    paths: Sequence[Path],
    config: PateConfig,
    dataset: str,
    teachers: int,
    seed: int,
    arrays: Arrays,
) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """The votes of all teachers, from the files of their shards, and what decides them.

    OsoError for votes of another study, data set, number of teachers, seed or data, and where a
    teacher is missing or votes twice.
    """
    expected = _facts(config, dataset, teachers, seed, arrays)
    total, seen = np.zeros(0, dtype=np.int64), []
    for path in paths:
        found, facts = read_record(path, KIND)
        seen += facts.pop("numbers", [])
        for name, value in expected.items():
            if facts.get(name) != value:
                raise OsoError(f"{path}: votes of {name} {facts.get(name)!r}; must be {value!r}")
        total = total + found["votes"] if len(total) else found["votes"]
    if sorted(seen) != [*range(teachers)]:
        raise OsoError(
            f"{_names(paths)}: votes of {len(set(seen))} teachers, {len(seen)} in all; must be one "
            f"vote of each of {teachers}"
        )
    return total, expected


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(map(str, paths)) or "votes"
