"""Training keeps a checkpoint at each evaluation, however little time there was between."""

import math

import pytest


@pytest.fixture(autouse=True)
def _kept_at_each_evaluation(monkeypatch) -> None:
    monkeypatch.setattr("oso_dp.training.loop.CHECKPOINT_TIME_FRACTION", math.inf)
