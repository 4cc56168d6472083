"""Faults of accounts and stored rows that the tests of their room once did not see."""

from fault import Fault, of_kind

_TOTALS = "tests/analysis/test_total_accounts.py"

OVERLOOKED_BOOKS = [
    *of_kind(
        "books",
        Fault(
            "two versions of a protected data set are one study",
            "analysis/total_accounts.py",
            '*("budget_runs", "data_version"),',
            '*("budget_runs",),',
            _TOTALS,
        ),
        Fault(
            "two studies of other noise are one",
            "analysis/total_accounts.py",
            '*("noise_multiplier", "epsilon", ',
            '*("epsilon", ',
            _TOTALS,
        ),
        Fault(
            "of several studies of protected data the last one's size counts",
            "results/protected.py",
            "max(sizes.get(dataset, 0), budget_runs(parse_json(text)) or 0)",
            "budget_runs(parse_json(text)) or 0",
            "tests/results/test_protected.py",
        ),
        Fault(
            "steps of a diverged run that were not made have the most noise of those that were",
            "analysis/charges.py",
            "least = min(nu for nu, _ in ledger.releases())",
            "least = max(nu for nu, _ in ledger.releases())",
            "tests/analysis/test_accounts.py",
        ),
        Fault(
            "own data: studies of two budgets are charged as one",
            "analysis/total_accounts.py",
            '"epsilon", "delta", "examples", "batch_size", "epochs"),',
            '"delta", "examples", "batch_size", "epochs"),',
            "tests/analysis/test_total_accounts.py",
        ),
        Fault(
            "own data: studies of other numbers of examples are charged as one",
            "analysis/total_accounts.py",
            '"delta", "examples", "batch_size"',
            '"delta", "batch_size"',
            "tests/analysis/test_total_accounts.py",
        ),
        Fault(
            "one row that says its search speaks for all of its grid",
            "analysis/accounts.py",
            "rows[_CHOICES].notna().all()",
            "rows[_CHOICES].notna().any()",
            "tests/analysis/test_accounts.py",
        ),
        Fault(
            "a row may start elsewhere than was planned",
            "results/row_claims.py",
            '("seed", "learning_rate", "threshold", "quantile")}',
            '("seed", "learning_rate")}',
            "tests/analysis/test_accounts_planned.py",
        ),
        Fault(
            "steps of several sampling rates are priced at the first one's",
            "accounting/accountants.py",
            "spent = sum(n * _step_rdp(sampling, nu) for (sampling, nu), n in releases.items())",
            "first = next(iter(releases))[0]\n"
            "    spent = sum(n * _step_rdp(first, nu) for (_, nu), n in "
            "releases.items())",
            "tests/accounting/test_accountants.py",
        ),
        Fault(
            "by PRV, steps of several sampling rates are priced at the first one's",
            "accounting/accountants.py",
            "made.history = [(nu, sampling.rate, n) for (sampling, nu), n in releases.items()]",
            "rate = next(iter(releases))[0].rate\n"
            "        made.history = [(nu, rate, n) for (_, nu), n in releases.items()]",
            "tests/accounting/test_accountants.py",
        ),
        Fault(
            "a collection's check sees the files that change, not the cohorts",
            "results/collect.py",
            "touched = names.isin(set(names[files.isin(changed)]))",
            "touched = files.isin(changed)",
            "tests/results/test_store.py",
        ),
        Fault(
            "of files with budgets the last one counts",
            "analysis/budgets.py",
            "[*GRID], ignore_index=True",
            '[*GRID], keep="last", ignore_index=True',
            "tests/analysis/test_budgets.py",
        ),
        Fault(
            "own data: a plan promises for the runs of one k",
            "analysis/data_statement.py",
            "methods[cohort.method] += len(cohort.runs)",
            "methods[cohort.method] = len(cohort.runs)",
            "tests/study/test_own_data.py",
        ),
    ),
    *of_kind(
        "campaign",
        Fault(
            "points in another precision are another search's",
            "results/other_search.py",
            '(*COHORT, "precision", "settings")',
            '(*COHORT, "settings")',
            "tests/bad_input/test_other_search.py",
        ),
    ),
]
