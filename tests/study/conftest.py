"""A small valid configuration to spoil."""

from copy import deepcopy
from typing import Any

import pytest

BASE = {
    "name": "test",
    "datasets": {"mnist": {"model": "cnn", "epsilons": [3, 9], "seconds_per_step": 0.3}},
    "methods": {"online": {}, "fixed_threshold": {}, "no_dp": {}},
    "values_per_axis": [5, 9],
    "seeds": [0, 1],
}


@pytest.fixture
def base() -> dict[str, Any]:
    return deepcopy(BASE)
