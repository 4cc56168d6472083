"""The input of the functions in `tables`."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from oso_dp.analysis.accounts import GridAccount
from oso_dp.analysis.result_set import ResultSet


@dataclass(frozen=True)
class ReportContext:
    """A study's results, with derived values that several tables and the page share."""

    study: ResultSet
    accounts: Sequence[GridAccount]
    claims: pd.DataFrame  # see `oso_dp.analysis.claims.judge_claims`
    pictures: Sequence[str]  # names of the drawn figures
