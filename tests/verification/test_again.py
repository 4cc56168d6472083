"""Which stored rows can be trained again at all."""

from pathlib import Path

import pandas as pd
import pytest
from tests.planned_rows import rows_of
from tests.study.test_own_data import planned as own_study

from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import Plan, make_plan
from oso_dp.verification.again import repeatable


def planned(repo: Path, randomness: str) -> Plan:
    smoke = load_config(repo / "config/smoke.yaml").model_dump()
    return make_plan(parse_config({**smoke, "randomness": randomness}, "x"))


@pytest.mark.parametrize("randomness", ["seeded", "system"])
def test_noise_that_was_never_seeded_comes_no_second_time(randomness: str, repo: Path) -> None:
    """Its run would be called beyond the tolerance, or a change of the code."""
    plan = planned(repo, randomness)
    found = repeatable(pd.DataFrame(rows_of(plan)["runs"]))
    expected = plan.run_ids() if randomness == "seeded" else []
    assert [one.run.run_id for one in found] == expected


def test_data_of_ones_own_are_not_here_to_train_on(offer) -> None:
    """Public ones neither: whoever verifies has no package that offers them."""
    offer(public="True")
    plan = own_study(randomness="seeded")
    assert all(cohort.public for cohort in plan.cohorts)
    assert repeatable(pd.DataFrame(rows_of(plan)["runs"])) == []
