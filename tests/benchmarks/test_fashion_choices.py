"""`benchmarks/fashion_choices.py`: what a choice changes, and that the rows are in one unit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.models import autoencoder as networks
from oso_dp.models.losses import squared_error


@pytest.fixture
def choices(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    import fashion_choices

    monkeypatch.setattr(networks, "autoencoder", networks.autoencoder)  # as it was, afterwards
    return fashion_choices


@pytest.fixture
def images() -> Arrays:
    random = np.random.default_rng(0)
    parts = [random.random((64, 1, 28, 28), dtype=np.float32) for _ in range(2)]
    labels = np.zeros(64, dtype=np.int64)
    return Arrays(parts[0], labels, parts[1], labels)


def test_dp_adam_takes_adam_wosms_points_and_noise_and_draws_its_own(choices) -> None:
    ((theirs, their_run),) = choices.planned(["adam_wosm"], [4.0], 1)
    ((mine, run),) = choices.planned(["dp_adam"], [4.0], 1)
    assert (mine.method, mine.method_options["beta2"]) == ("dp_adam", 0.999)
    assert mine.noise_multiplier == theirs.noise_multiplier
    assert (run.point, run.seed) == (their_run.point, their_run.seed)
    assert run.run_id != their_run.run_id


@pytest.mark.parametrize("name", ["as_chosen", "tanh", "stride_2"])
def test_a_rows_values_are_in_the_images_own_unit(choices, images, name, monkeypatch) -> None:
    ((cohort, run),) = choices.planned(["adam_wosm"], [4.0], 1)
    assert (cohort.precision, run.threshold) == ("bfloat16", pytest.approx(0.0316228))
    small = replace(
        cohort, examples=64, batch_size=32, epochs=1, evaluate_every=1, precision="float32"
    )
    ends = []
    monkeypatch.setattr(choices, "train", _keeping(ends, choices.train))
    row = choices.run_one(name, small, run, images)
    choice = choices.CHOICES[name]
    seen = torch.from_numpy(choice.scale * (images.test_inputs - np.float32(choice.shift)))
    network = choice.network()
    torch.nn.utils.vector_to_parameters(ends[-1], network.parameters())
    with torch.no_grad():
        error = squared_error(network(seen), seen).mean() / choice.scale**2
    assert row["last"] == pytest.approx(100 * float(error), rel=1e-4)
    values = dict(each.split(":") for each in row["values"].split())
    assert list(values) == ["1", "2"]
    assert row["best"] == pytest.approx(min(map(float, values.values())), rel=1e-3)
    assert (row["choice"], row["method"], row["epsilon"]) == (name, "adam_wosm", 4.0)


def _keeping(ends, train):
    """`train`, with the weights that the run ends with."""

    def call(task, runs, arrays, **options):
        kept = {}
        outcomes = train(
            task, runs, arrays, watch=lambda state, answers: kept.update(state=state), **options
        )
        ends.append(kept["state"].parameters[0].clone())
        return outcomes

    return call
