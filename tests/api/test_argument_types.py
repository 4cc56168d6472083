"""Numbers and data in the forms that other libraries give them."""

import numpy as np
import pandas as pd
import pytest
import torch

from oso_dp import OsoError
from oso_dp.api.datasets import DatasetExamples

SEEDED = {"randomness": "seeded", "seed": 1}


def weights(made) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in made.model.parameters()])


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": np.float32(3), "batch_size": np.int64(400), "epochs": np.int32(2)},
        {"epsilon": torch.tensor(3.0), "batch_size": torch.tensor(400), "seed": np.int64(1)},
        {"learning_rate": np.float32(1), "threshold_rate": torch.tensor(2.0)},
    ],
)
def test_scalars_of_other_libraries_are_numbers(train, given) -> None:
    usual = {**SEEDED, "batch_size": 400, "threshold_rate": 2.0}
    first, other = train(**usual), train(**{**usual, **given})
    assert torch.equal(weights(first), weights(other))
    assert type(other.statement.budget) is float
    assert type(other.statement.epsilon) is float


def test_a_grid_of_numpy_numbers_is_searched(search) -> None:
    made = search({"learning_rate": list(np.array([0.1, 0.5], dtype=np.float32))})
    assert [tried.status for tried in made.trials] == ["finished", "finished"]


def test_a_list_of_pairs_is_a_data_set(train, data) -> None:
    pairs = [(one, int(other)) for one, other in zip(*data, strict=True)]
    first, other = (train(data=form, batch_size=400, **SEEDED) for form in (data, pairs))
    torch.testing.assert_close(weights(other), weights(first), rtol=1e-5, atol=1e-6)


def test_a_method_whose_rule_knows_its_own_steps_takes_no_schedule(train) -> None:
    with pytest.raises(
        OsoError, match="schedule: 'linear'; must be 'constant' for method 'auto_dog'"
    ):
        train(method="auto_dog", schedule="linear")


def test_inputs_that_ask_for_gradients_are_data(train, data) -> None:
    inputs, targets = data
    first, other = (
        train(data=(form, targets), batch_size=400, **SEEDED)
        for form in (inputs, inputs.clone().requires_grad_())
    )
    assert torch.equal(weights(other), weights(first))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_table_is_taken_without_a_warning(train, data, dtype) -> None:
    """Its numbers are read only; torch warns of arrays that are, and pytest fails at a warning."""
    inputs, targets = data
    table = pd.DataFrame(inputs.numpy().astype(dtype)), pd.Series(targets.numpy())
    first, other = (train(data=form, batch_size=400, **SEEDED) for form in (data, table))
    assert torch.equal(weights(first), weights(other))


def test_a_row_that_is_not_finite_adds_nothing_and_nobody_is_told(train, data) -> None:
    """Tensors are looked through before; a training that ended at a row would tell of the row."""
    pairs = [(one, int(other)) for one, other in zip(*data, strict=True)]
    pairs[7] = (pairs[7][0] * torch.nan, 1)
    spoilt = train(data=pairs, batch_size=400, **SEEDED)
    assert spoilt.status == "finished"
    assert weights(spoilt).isfinite().all()


def test_a_batch_of_nobody_of_a_data_set_is_a_step_like_any_other(train, data) -> None:
    """An error would tell that it was empty."""

    class Pairs:
        def __len__(self) -> int:
            return len(data[0])

        def __getitem__(self, index: int):
            return data[0][index], data[1][index]

    fetched = DatasetExamples(Pairs(), torch.device("cpu")).batch(torch.zeros(1, 0).long())
    inputs, targets, absent = fetched
    assert absent is None
    assert (inputs.shape, targets.shape) == ((1, 0, 6), (1, 0))
    made = train(data=Pairs(), batch_size=1, epochs=0.05, randomness="seeded", seed=3)
    assert made.ledger.step_count == 20  # of which a third has nobody
