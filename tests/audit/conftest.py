"""The audit's library is an optional extra: without it, these tests skip."""

import importlib.util
import os

import pytest


@pytest.fixture(scope="session")
def library() -> None:
    """Skip where jax_privacy is absent; fail if OSO_REQUIRE_SHARED=1, which allows no skips."""
    if importlib.util.find_spec("jax_privacy") is not None:
        return
    reason = "jax_privacy is absent (the extra `audit`)"
    if os.environ.get("OSO_REQUIRE_SHARED") == "1":
        pytest.fail(f"OSO_REQUIRE_SHARED=1, but {reason}", pytrace=False)
    pytest.skip(reason)
