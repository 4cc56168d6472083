"""What the files of `tables` are handed."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from oso_dp.analysis.accounts import GridAccount
from oso_dp.analysis.result_set import ResultSet


@dataclass(frozen=True)
class ReportContext:
    """A study, and what was computed from it once for several tables and the page."""

    study: ResultSet
    accounts: Sequence[GridAccount]
    claims: pd.DataFrame  # see `oso_dp.analysis.claims.judged`
    pictures: Sequence[str]  # names of the figures that were drawn
