"""How many inputs a reader gets: some now, very many in the long form (OSO_TEST_ROUNDS=100)."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

from oso_dp.errors import OsoError

LONG = int(os.environ.get("OSO_TEST_ROUNDS", "10")) >= 100


def inputs(short: int, long: int) -> settings:
    """So many; the long form takes others each time, and prints how to have a failure again."""
    return settings(
        max_examples=long if LONG else short,
        derandomize=not LONG,
        print_blob=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def read_or_refused(read: Callable[..., Any], *given: Any) -> Any:
    """What the reader returns, or None where it raises an OsoError of one short line."""
    try:
        return read(*given)
    except OsoError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 2000
        return None
