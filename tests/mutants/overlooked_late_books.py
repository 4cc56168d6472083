"""Of the accounts: grids that search another axis, several folders, plans and data sets; what rows
do not say of themselves."""

from fault import ACCOUNTS, A, Fault, of_kind

_SCALED = "tests/analysis/test_scaled_accounts.py"
_TOTALS = "tests/analysis/test_total_accounts.py"
_PLANNED = "tests/analysis/test_accounts_planned.py"
_PRICES = "tests/analysis/test_search_costs.py"
_STATEMENTS = "tests/analysis/test_statements.py"
_CAMPAIGN = "tests/campaign/test_handed_over.py"
_CLI = "tests/cli/test_account.py"

OVERLOOKED_LATE_BOOKS = of_kind(
    "books",
    Fault(
        "points are told apart by their learning rates alone",
        "analysis/accounts.py",
        '_POINT = ["learning_rate", "threshold", "quantile"]',
        '_POINT = ["learning_rate"]',
        ACCOUNTS,
    ),
    Fault(
        "points of scaled searches are told apart by their learning rates alone",
        "analysis/scaled_accounts.py",
        '_POINT = ["learning_rate", "threshold", "quantile"]',
        '_POINT = ["learning_rate"]',
        _SCALED,
    ),
    Fault(
        "of protected data rows of no budget are free",
        "analysis/total_accounts.py",
        "rows.groupby(_STUDY, dropna=False, sort=False)",
        "rows.groupby(_STUDY, sort=False)",
        _TOTALS,
    ),
    Fault(
        "rows with other settings than a study's leave the total",
        "analysis/total_accounts.py",
        '"grid_runs" in parse_json(text)',
        "True",
        _TOTALS,
    ),
    Fault(
        "what settings say of protected data needs no identity",
        "results/protected.py",
        'covered = "grid_runs" in said',
        "covered = True",
        _TOTALS,
    ),
    Fault(
        "a collection of rows that say nothing is not held against the total",
        "results/collect.py",
        '{*merged.runs.loc[touched, "dataset"]}',
        '{*merged.runs.loc[touched & own, "dataset"]}',
        _TOTALS,
    ),
    Fault(
        "a planned row may have any settings",
        "results/row_claims.py",
        '{"settings": cohort.settings}',
        "{}",
        _PLANNED,
    ),
    Fault(
        "a planned row may have any momentum",
        "results/row_claims.py",
        '("selection", "momentum", "precision")',
        '("selection", "precision")',
        _PLANNED,
    ),
    Fault(
        "scaled searches with other constants are one",
        "analysis/scaled_accounts.py",
        'if name != "part"}',
        'if name not in ("part", "settings")}',
        _SCALED,
    ),
    Fault(
        "other accountants are asked at the usual delta",
        "analysis/accounts.py",
        "        delta=delta,\n        runs=len(whole),",
        "        delta=1e-5,\n        runs=len(whole),",
        ACCOUNTS,
    ),
    Fault(
        "the table of accounts names the usual delta",
        "analysis/accounts.py",
        '"delta": grid.delta,',
        '"delta": 1e-5,',
        ACCOUNTS,
    ),
    Fault(
        "a price is at another data set's epsilon",
        "analysis/search_costs.py",
        'noise.loc[noise["dataset"] == dataset, "epsilon"].unique()',
        'noise["epsilon"].unique()',
        _PRICES,
    ),
    Fault(
        "a price is of the most frequent rows of all data sets",
        "analysis/search_costs.py",
        'rows = study.runs[study.runs["dataset"] == dataset]',
        "rows = study.runs",
        _PRICES,
    ),
    Fault(
        "protected data sets of one version have one statement",
        "analysis/data_statement.py",
        "by_dataset.setdefault(cohort.dataset, [])",
        'by_dataset.setdefault(cohort.data_version or "", [])',
        _STATEMENTS,
    ),
    Fault(
        "what is collected is held against no plan",
        "cli/collect.py",
        "require_within(account(runs, *known))",
        "require_within(account(runs))",
        _CLI,
    ),
    Fault(
        "what is collected is not held against the plan that is named",
        "cli/collect.py",
        "known = [*plans, *map(read_plan, plans_of(store))]",
        "known = [*map(read_plan, plans_of(store))]",
        _CLI,
    ),
    Fault(
        "what is collected is not held against the store's plan",
        "cli/collect.py",
        "known = [*plans, *map(read_plan, plans_of(store))]",
        "known = plans",
        _CLI,
    ),
    Fault(
        "what was spent is said as the nearest number",
        "cli/account.py",
        "spent_text(one) if one == one",
        'f"{one:.4f}" if one == one',
        _CLI,
    ),
    Fault(
        "long searches of many short runs are given to PLD",
        "accounting/search.py",
        "if self.runs * self.steps + earlier > _MOST_STEPS_FOR_PLD:",
        "if self.steps + earlier > _MOST_STEPS_FOR_PLD:",
        A + "test_search.py",
    ),
    Fault(
        "long searches after others out of the same budget are given to PLD",
        "accounting/search.py",
        "if self.runs * self.steps + earlier > _MOST_STEPS_FOR_PLD:",
        "if self.runs * self.steps > _MOST_STEPS_FOR_PLD:",
        A + "test_search.py",
    ),
) + of_kind(
    "campaign",
    Fault(
        "a campaign does not know the store in which its plan lies",
        "campaign/prepare.py",
        "have = default if options.have is None else options.have",
        "have = options.have or []",
        _CAMPAIGN,
    ),
    Fault(
        "a campaign does not know what its own folder has spent",
        "campaign/prepare.py",
        "for folder in (options.results, *have):",
        "for folder in have:",
        _CAMPAIGN,
    ),
    Fault(
        "of several folders that hold runs the first counts",
        "campaign/parts.py",
        "for store in have for run_id in stored_runs(store)}",
        "for store in have[:1] for run_id in stored_runs(store)}",
        "tests/campaign/test_campaign.py",
    ),
)
