"""A campaign's minutes are not those of the wall's clock, which may jump."""

import itertools
import time

from oso_dp.campaign.control import Control
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
