"""Every test that takes a mode runs in each, unless it says in which."""

import pytest
from tests.opacus.helpers import MODES


@pytest.fixture(params=MODES)
def mode(request) -> str:
    return request.param
