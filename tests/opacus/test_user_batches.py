"""Epsilon is that of Poisson batches: who draws others, out of habit, is told."""

import warnings

import pytest
from tests.opacus.helpers import MODES, QUIET, examples, loader_of, make

OTHER = "optimizer.step: the loader that make_private returned has not been iterated over"
pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET[:2]]


@pytest.mark.parametrize("mode", MODES)
def test_a_script_that_goes_on_with_its_own_loader_is_warned(mode: str) -> None:
    made, own = make(mode=mode), loader_of(*examples())
    with pytest.warns(UserWarning, match=OTHER) as told:
        made.step(*next(iter(own)))
    (said,) = (one for one in told if str(one.message).startswith(OTHER))
    assert said.filename.endswith("helpers.py")  # where the script steps


def test_of_the_loader_that_was_returned_nothing_is_said() -> None:
    made = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", OTHER)
        for batch in made.loader:
            made.step(*batch)
