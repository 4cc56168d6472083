"""What `train_private` does where no method is said: the default that did best without a search."""

from collections.abc import Mapping
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.study.defaults import RECOMMENDED
from oso_dp.training.schedule import CONSTANT


def way(
    method: str | None,
    schedule: str | None,
    start: Mapping[str, float | None],
    settings: Mapping[str, float],
    after: str | None,
) -> dict[str, Any]:
    """Method, schedule and starting values as `Choices` takes them.

    start: starting values by name, None where they were not said. settings: the method's constants.
    after: the method of what training goes on from, which stays unless another is said. OsoError
    for values of a method that was not said: another method's mean something else.
    """
    if method is None and after is None:
        for name in (*(name for name, value in start.items() if value is not None), *settings):
            raise OsoError(
                f"{name}: say of which method, as method='online'; without one, train_private "
                f"takes {RECOMMENDED.method} with values of its own"
            )
    if method is None and after in (None, RECOMMENDED.method):
        said = {name: value for name, value in start.items() if value is not None}
        usual = RECOMMENDED.schedule or CONSTANT
        return {**RECOMMENDED.point, **said} | {
            "method": RECOMMENDED.method,
            "schedule": schedule or usual,
        }
    return {**start, "method": method or after, "schedule": schedule or CONSTANT}
