"""A plan where only training's libraries are installed: no pydantic, no yaml.

The values were checked when the plan was written. What decides a run is held against the digests of
the runs that the plan was priced for, so that neither an edited file nor another version of this
package trains other runs than planned.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.study.cohort import cohorts
from oso_dp.study.identity import USUAL
from oso_dp.study.plan import Plan, read_plan

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig


class PlainConfig(SimpleNamespace):
    """Stands in for StudyConfig: the same attributes, unchecked, and each method's settings."""

    def method(self, name: str) -> Method:
        method = find_method(name)
        return method(method.Settings(**self.settings[name]), self.momentum)


def read_plain_plan(path: Path) -> Plan:
    """As `read_plan`, with a PlainConfig for its configuration."""
    return read_plan(path, _parse)


def with_values(config: "StudyConfig", **values: Any) -> "StudyConfig":
    """A PlainConfig with some values replaced."""
    return cast("StudyConfig", PlainConfig(**{**vars(config), **values}))


def paper_best_runs(config: "StudyConfig") -> set[str]:
    """Identities of a PlainConfig's runs with the best hyperparameters that the paper reports.

    None for a grid of other ranges than the paper's.
    """
    try:
        best = cohorts(with_values(config, select="paper_best"))
    except OsoError:
        return set()
    return {run.run_id for cohort in best for run in cohort.runs}


def _parse(content: dict[str, Any], source: str) -> "StudyConfig":
    values = content["config"]
    sections = {  # a plan from before there was a choice does not name it
        name: SimpleNamespace(**{"precision": USUAL["precision"], **each})
        for name, each in values["datasets"].items()
    }
    plain = PlainConfig(
        **{**values, "datasets": sections, "grid": SimpleNamespace(**values["grid"])},
        settings=content["settings"],
    )
    return cast("StudyConfig", plain)
