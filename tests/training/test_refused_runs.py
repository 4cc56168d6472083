"""Runs that train side by side: what one of them lacks is not made up by the others."""

from dataclasses import replace

import pytest

from oso_dp.errors import OsoError
from oso_dp.training.loop import study_training


@pytest.mark.parametrize("lacks", range(3))
def test_no_run_clips_without_a_threshold(lacks, arrays, make_task, make_run) -> None:
    runs = [make_run(f"run {number}") for number in range(3)]
    runs[lacks] = replace(runs[lacks], threshold=None)
    with pytest.raises(
        OsoError, match="method 'fixed_threshold': clips at a threshold, but a run has none"
    ):
        study_training(make_task("fixed_threshold"), runs, arrays)
