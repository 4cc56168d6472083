"""Noise multiplier of a search of N runs under each kind of search accounting."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.search_costs import RULES, search_costs, select_rule
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table


def tables(sources: ReportContext) -> list[Table]:
    return [cost_table(sources.study)]


def cost_table(study: ResultSet) -> Table:
    """One row per data set and number of runs, one column per rule."""
    data = search_costs(study)
    printed = []
    for (dataset, epsilon, runs), rows in data.groupby(["dataset", "epsilon", "runs"], sort=False):
        cells = {
            "data set": labels.dataset_short(dataset),
            "ε": labels.format_budget(epsilon),
            "N": str(runs),
            "grid": rows["grids"].iloc[0],
        }
        for rule in RULES:
            cells[rule.heading] = labels.format_number(select_rule(rows, rule).get(runs), ".3f")
        printed.append(cells)
    headings = ["data set", "ε", "N", "grid", *(rule.heading for rule in RULES)]
    notes = (
        "Cells are the noise multiplier ν of each run. A dash: no noise meets the budget, or a "
        "single run has no random stopping.",
        "All N: every run is charged, as in the paper (RDP) or by a tighter accountant (PLD). "
        "Poisson, geometric, logarithmic: random stopping, where candidates are drawn from the "
        "grid a random number of times, N on average with this distribution, and only the best is "
        "released (Papernot and Steinke 2022, by RDP).",
    )
    title = "Noise multiplier of a search of N runs"
    return Table("search_cost", title, data, pd.DataFrame(printed, columns=headings), notes)
