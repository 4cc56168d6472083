"""Training keeps a checkpoint at each evaluation, however little time there was between."""

import math

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays


@pytest.fixture(autouse=True)
def _kept_at_each_evaluation(monkeypatch) -> None:
    monkeypatch.setattr("oso_dp.training.loop.CHECKPOINT_TIME_FRACTION", math.inf)


@pytest.fixture(scope="module")
def glyphs(arrays) -> Arrays:
    """As many examples as the catalogue says."""
    train = np.tile(arrays.train_inputs, (30, 1, 1, 1)), np.tile(arrays.train_targets, 30)
    return Arrays(*train, arrays.test_inputs, arrays.test_targets)
