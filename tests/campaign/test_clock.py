"""A campaign's minutes are not those of the wall's clock, which may jump, nor those of a pause."""

import itertools
import time

import pytest

from oso_dp.campaign.control import Control, act, clear
from oso_dp.campaign.team import Minutes


def test_a_campaign_ends_with_its_work_however_the_clock_jumps(
    campaign, machine, tmp_path, monkeypatch
) -> None:
    real, jumps = time.time, itertools.cycle([0, 86_400, -3_600])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    control = Control(tmp_path)
    made = campaign(clock=control.clock, deadline=control.clock() + 600)
    minutes = Minutes(made)
    made.run()
    assert made.runs == len(machine.trained) == 16
    assert minutes.next - time.monotonic() <= 60
    times = [seconds for _, seconds in made.parts.measured("cpu", made.everything)]
    assert all(seconds > 0 for seconds in times)


@pytest.mark.parametrize("pauses", [1, 2, 5])
def test_no_pause_counts_however_many_there_were(tmp_path, pauses: int) -> None:
    """By a clock that only moves while somebody sleeps or works."""
    now = [0.0]
    clear(tmp_path)

    def sleep(seconds: float) -> None:
        now[0] += seconds
        act("resume", tmp_path)

    control = Control(tmp_path / ".progress", lambda: now[0], sleep)
    for work in range(1, pauses + 1):
        (tmp_path / ".progress" / "pause").touch()
        control.look()
        now[0] += 7
        assert control.clock() == pytest.approx(7 * work)
    assert now[0] > 7 * pauses
