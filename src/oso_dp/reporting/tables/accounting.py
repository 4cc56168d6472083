"""The privacy accounts of all grids, as a table and a sentence."""

from collections.abc import Sequence
from typing import Any

from oso_dp import labels
from oso_dp.accounting.formatting import format_epsilon_column
from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.analysis.accounts import ALL_METHODS, GridAccount, accounts_table
from oso_dp.analysis.values import sort_as_paper
from oso_dp.reporting.table import DATASET, Column, ReportContext, Table, TableSpec

_NAMED = 5  # grids above their budget that the sentence names


def tables(context: ReportContext) -> list[Table]:
    return [accounting_table(context.accounts)]


def _spent(epsilon: float) -> str:
    return labels.DASH if labels.is_missing(epsilon) else format_epsilon_column(epsilon)


def _method(row: dict[str, Any]) -> str:
    """The method, with its search accounting if not composition."""
    label = labels.method_label(row["method"])
    if row["search_accounting"] == COMPOSITION:
        return label
    return f"{label}, {row['search_accounting'].replace('_', ' ')}"


_SPEC = TableSpec(
    "accounting",
    "Epsilon of each grid, from its ledgers",
    (
        DATASET,
        Column("method", _method),
        Column("k", lambda row: ALL_METHODS if row["method"] == ALL_METHODS else row["k"]),
        Column("ε allowed", "budget", labels.format_budget),
        Column("δ", "delta", labels.format_delta),
        *(Column(label, name) for label, name in (("N", "runs"), ("stored", "stored"))),
        Column("seeds", "seeds"),
        Column("ε spent, RDP", "rdp", _spent),
        *(Column(name.upper(), name, _spent) for name in ("pld", "prv")),
        Column("verdict", "verdict"),
    ),
    (
        "RDP is the study's accountant and decides the verdict. PLD (another method) and PRV "
        "(another library) are tighter checks, for the most expensive grid of each data set unless "
        "it exceeds its budget.",
        "Runs of a grid that are not stored are charged as full runs with the smallest noise of "
        "the stored ones. Seeds repeat a grid and are not charged. A search by the linear scaling "
        "rule is charged for all runs of its trials and one final run. A data set that is not "
        "public is charged for all methods, grids and seeds, in one row.",
    ),
)


def accounting_table(accounts: Sequence[GridAccount]) -> Table:
    """One row per private grid: budget, epsilon by RDP from its ledgers, verdict.

    PLD and PRV are given for the most expensive grid of each data set (see `accounts_table`).
    """
    data = sort_as_paper(accounts_table(accounts).rename(columns={"budget": "epsilon"}))
    return _SPEC.fill(data.rename(columns={"epsilon": "budget"}))


def statement(accounts: Sequence[GridAccount]) -> str:
    """Whether the ledgers are within the budgets, as a sentence."""
    if not accounts:
        return "No run here is private: there is no ledger to account for."
    totals = [_total_sentence(account) for account in accounts if account.total]
    grids = [account for account in accounts if not account.total]
    return " ".join([*totals, *([_grids_sentences(grids)] if grids else [])])


def _total_sentence(account: GridAccount) -> str:
    verdict = (
        "within its budget" if account.is_within_budget else "ABOVE its budget: do not rely on it"
    )
    return (
        f"All {account.runs} runs on {account.dataset} together, of every method, grid point and "
        f"seed, cost ε = {format_epsilon_column(account.spent)} of {account.epsilon:g} by RDP, "
        f"{verdict}."
    )


def _grids_sentences(accounts: Sequence[GridAccount]) -> str:
    exceeded = [grid.name for grid in accounts if not grid.is_within_budget]
    count = len(accounts)
    subject = "The only grid was" if count == 1 else f"All {count} grids were"
    text = f"{subject} recomputed from the stored ledgers, by RDP. "
    if not exceeded:
        text += "It is within its budget. " if count == 1 else "None exceeds its budget. "
    if exceeded:
        names = ", ".join(exceeded[:_NAMED]) + (", …" if len(exceeded) > _NAMED else "")
        subject = (
            "It exceeds its budget" if count == 1 else f"{len(exceeded)} of them exceed theirs"
        )
        text += f"{subject}: {names}. Do not rely on their ε. "
    return text + "A grid's runs are charged once; its repetitions with other seeds are not."
