import math
import re
from contextlib import nullcontext

import pytest

from oso_dp.errors import OsoError
from oso_dp.value_checks import check_integer, check_number


def refused(name: str, value: object, allowed: str):
    return pytest.raises(OsoError, match=f"^{re.escape(f'{name}: {value!r}; must be {allowed}')}$")


@pytest.mark.parametrize(
    ("limit", "symbol", "fits"),
    [
        ("gt", ">", (False, False, True)),
        ("ge", ">=", (False, True, True)),
        ("le", "<=", (True, True, False)),
        ("lt", "<", (True, False, False)),
    ],
)
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_check_number_integer_limits_enforced(
    limit: str, symbol: str, fits: tuple, kind: str
) -> None:
    check, allowed = {
        "number": (check_number, f"a number {symbol} 1"),
        "integer": (check_integer, f"an integer {symbol} 1"),
    }[kind]
    for value, may_pass in zip((0, 1, 2), fits, strict=True):
        with nullcontext() if may_pass else refused("size", value, allowed):
            check("size", value, **{limit: 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, 1j])
def test_check_number_nonfinite_or_bool_rejected(value: object) -> None:
    allowed = "a number" if value in (True, "1", None, 1j) else "a finite number"
    with refused("rate", value, allowed):
        check_number("rate", value)
    with refused("rate", value, f"{allowed} > 0 and <= 1e+06"):
        check_number("rate", value, gt=0, le=10**6)


@pytest.mark.parametrize("value", [1.0, True, "1", None, math.nan])
def test_check_integer_float_or_bool_rejected(value: object) -> None:
    with refused("count", value, "an integer >= 1"):
        check_integer("count", value, ge=1)
    check_integer("count", 10**400)
