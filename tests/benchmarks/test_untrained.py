"""`benchmarks/untrained.py`: starting weights, as training begins with them: values, gradients."""

import pytest
import torch

from oso_dp.data.arrays import save_arrays
from oso_dp.models import build_model
from oso_dp.training.evaluate import Evaluator


@pytest.fixture
def untrained(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    import untrained

    return untrained.untrained


def test_each_seeds_value_is_that_of_its_first_weights(
    untrained, arrays, tmp_path, monkeypatch
) -> None:
    started = []
    taken = build_model("small_cnn", False)
    monkeypatch.setattr("oso_dp.training.evaluate.Evaluator.__call__", _noting(started, Evaluator))
    path = tmp_path / "glyphs.npz"
    save_arrays(path, arrays, {"dataset": "glyphs"})
    values, _ = untrained("small_cnn", path, 3)
    assert values[:2] == untrained("small_cnn", path, 2)[0]
    inputs, targets = torch.from_numpy(arrays.test_inputs), torch.from_numpy(arrays.test_targets)
    for value, flat in zip(values, started, strict=False):
        torch.nn.utils.vector_to_parameters(flat, taken.parameters())
        with torch.no_grad():
            right = (taken(inputs).argmax(dim=1) == targets).double().mean()
        assert value == pytest.approx(100 * float(right))
    assert len({tuple(flat.tolist()) for flat in started[:3]}) == 3


def _noting(started, kind):
    scores = kind.__call__

    def call(self, flat):
        started.append(flat.clone())
        return scores(self, flat)

    return call
