"""`oso` in this process, and what is asked of a refusal, for the tests of every command."""

import sys
from collections.abc import Callable

import pytest

from oso_dp.cli import main

Outcome = tuple[int, str, str]


@pytest.fixture
def oso(monkeypatch, capsys) -> Callable[..., Outcome]:
    """Run `oso`: (exit status, standard output, standard error)."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["oso", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def refused(outcome: Outcome, *parts: str) -> str:
    """One line, of oso's own, that names what it is about."""
    status, _, error = outcome
    assert status == 2, outcome
    assert error.startswith("oso: error: ")
    assert error.count("\n") == 1
    assert len(error) < 600
    for part in parts:
        assert part in error
    return error
