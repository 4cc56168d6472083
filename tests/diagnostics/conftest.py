"""A plan and data that a probe can be called on."""

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan, write_plan


@pytest.fixture(scope="package")
def planned(tmp_path_factory, repo):
    """A plan, and data that fit it."""
    folder = tmp_path_factory.mktemp("planned")
    plan, data = folder / "plan.json", folder / "data.npz"
    write_plan(make_plan(load_config(repo / "config/ci/smoke.yaml")), plan)
    inputs, targets = np.zeros((6000, 1, 14, 14), np.float32), np.arange(6000) % 10
    arrays = Arrays(inputs, targets, inputs[:1000], targets[:1000])
    save_arrays(data, arrays, {"dataset": "glyphs"})
    return plan, data
