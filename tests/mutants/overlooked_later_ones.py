"""Of the accounts: the later of several grids, cohorts and data sets, other deltas, and how a
number is said."""

from fault import A, Fault, of_kind

_COUNTED = "tests/cli/test_accounts_counted.py"
_ANSWERS = "tests/cli/test_search_answers.py"
_OTHER = "tests/bad_input/test_other_search.py"
_OWN = "tests/cli/test_own_data.py"
_STATEMENT = "tests/study/test_own_data.py"

OVERLOOKED_LATER_ONES = of_kind(
    "books",
    Fault(
        "of an account's grids the first alone has to keep its budget",
        "cli/account.py",
        "require_within(grids)",
        "require_within(grids[:1])",
        _COUNTED,
    ),
    Fault(
        "of an account's grids the first alone has to be clear",
        "cli/account.py",
        "require_clear(grids)",
        "require_clear(grids[:1])",
        _COUNTED,
    ),
    Fault(
        "of what is collected one grid alone has to keep its budget",
        "cli/collect.py",
        "require_within(account(runs, *known))",
        "require_within(account(runs, *known)[:1])",
        _COUNTED,
    ),
    Fault(
        "of a summary's grids the first alone has to keep its budget",
        "reporting/summary.py",
        "require_within(account(study.runs, *map(read_plan, plans)))",
        "require_within(account(study.runs, *map(read_plan, plans))[:1])",
        _COUNTED,
    ),
    Fault(
        "of several protected data sets the first alone has a statement",
        "cli/account.py",
        "in stored_statements(runs, grids):",
        "in stored_statements(runs, grids)[:1]:",
        _COUNTED,
    ),
    Fault(
        "of a plan's protected data sets the first alone has a statement",
        "cli/plan.py",
        "in planned_statements(made.cohorts):",
        "in planned_statements(made.cohorts)[:1]:",
        _OWN,
    ),
    Fault(
        "of a plan's data sets the first alone is looked for in the store",
        "cli/plan.py",
        "refuse_spent(Path(study.results), every)",
        "refuse_spent(Path(study.results), every[:1])",
        _OWN,
    ),
    Fault(
        "PLD's noise is never that of a small delta",
        "accounting/search.py",
        "least_noise(self._costs(accountant, delta), epsilon, tolerance, near or rdp)",
        "least_noise(self._costs(accountant, max(delta, 1e-5)), epsilon, tolerance, near or rdp)",
        A + "test_search.py",
    ),
    Fault(
        "PLD's epsilon is never that of a small delta",
        "accounting/accountants.py",
        "compose(event).get_epsilon(delta))",
        'compose(event).get_epsilon(delta if accountant == "rdp" else max(delta, 1e-5)))',
        A + "test_accountants.py",
    ),
    Fault(
        "of a plan the first cohort has to be affordable, whichever is trained",
        "cli/train.py",
        "check_affordable([chosen])",
        "check_affordable(planned.cohorts[:1])",
        "tests/bad_input/test_plans.py",
    ),
    Fault(
        "another search is no other one unless it is composed",
        "results/other_search.py",
        "if cohort.selection == SINGLE:",
        'if cohort.selection in (SINGLE, "random_stopping", "linear_scaling"):',
        _OTHER,
    ),
    Fault(
        "a search may have one point more than it pays for",
        "results/other_search.py",
        "if len(both) > cohort.grid_runs:",
        "if len(both) > cohort.grid_runs + 1:",
        _OTHER,
    ),
    Fault(
        "of a plan the first cohort is looked for, whichever is trained",
        "cli/train.py",
        "refuse_other_search(store, [chosen])",
        "refuse_other_search(store, planned.cohorts[:1])",
        _OTHER,
    ),
    Fault(
        "of a study's cohorts the first alone is looked for",
        "cli/plan.py",
        "refuse_other_search(Path(study.results), every)",
        "refuse_other_search(Path(study.results), every[:1])",
        _OTHER,
    ),
    Fault(
        "a file of another name in a store's folder is overlooked",
        "results/read.py",
        "or not _OF_A_COHORT.search(file.name)",
        "or file == table",
        f"tests/results/test_spent.py {_OTHER}",
    ),
    Fault(
        "a grid larger than the paper's is charged as the paper's",
        "analysis/accounts.py",
        'return said["grid_runs"], shape, choices',
        'return min(said["grid_runs"], default_grid_size(row["method"], int(row["k"]))), shape, '
        "choices",
        "tests/analysis/test_accounts.py",
    ),
    Fault(
        "earlier rows of data that are not public are thrown away",
        "results/collect.py",
        'if protected(runs[runs["run_id"] == run]).any():',
        "if protected(runs[:0]).any():",
        "tests/results/test_protected.py",
    ),
) + of_kind(
    "reported",
    Fault(
        "a sentence rounds epsilon to the nearest",
        "cli/search_options.py",
        "f\"epsilon {epsilon_text(entry['epsilon'])}, \"",
        "f\"epsilon {entry['epsilon']:.4g}, \"",
        _ANSWERS,
    ),
    Fault(
        "a sentence rounds delta",
        "cli/search_options.py",
        "delta {entry['delta']!r} (",
        "delta {entry['delta']:.0e} (",
        _ANSWERS,
    ),
    Fault(
        "a trial's noise is rounded to the nearest",
        "cli/search_options.py",
        "{noise_text(trial['noise_multiplier'])}",
        "{trial['noise_multiplier']:.4f}",
        _ANSWERS,
    ),
    Fault(
        "a study's noise is rounded to the nearest",
        "cli/calibrate.py",
        "return noise_text(value) if is_noise else value",
        'return f"{value:.4f}" if is_noise else value',
        _ANSWERS,
    ),
    Fault(
        "a split's noise is no noise",
        "cli/calibrate.py",
        'is_noise = key in ("noise_multiplier", *options.SPLIT) and',
        'is_noise = key == "noise_multiplier" and',
        _ANSWERS,
    ),
    Fault(
        "of a study's data sets the first alone is named for its delta",
        "cli/calibrate.py",
        "in deltas.items():",
        "in [*deltas.items()][:1]:",
        _ANSWERS,
    ),
    Fault(
        "a trial is said to have the whole budget",
        "study/affordable.py",
        "its budget is {budget:g}",
        "its budget is {cohort.epsilon:g}",
        "tests/study/test_linear_scaling.py",
    ),
    Fault(
        "what was spent is said as if it were the budget",
        "analysis/accounts.py",
        "cost epsilon {epsilon_text(grid.spent)} at ",
        "cost epsilon {grid.spent:.4g} at ",
        "tests/analysis/test_accounts_exact.py",
    ),
    Fault(
        "a statement has epochs for steps",
        "analysis/data_statement.py",
        "        steps=first.steps,",
        "        steps=first.epochs,",
        _STATEMENT,
    ),
    Fault(
        "a statement rounds its delta",
        "analysis/data_statement.py",
        "{self.delta:g})-differential",
        "{self.delta:.0e})-differential",
        _STATEMENT,
    ),
    Fault(
        "a statement rounds its budget",
        "analysis/data_statement.py",
        "total budget is epsilon {self.budget:g}.",
        "total budget is epsilon {self.budget:.0f}.",
        _STATEMENT,
    ),
    Fault(
        "noise that was used is rounded up",
        "accounting/said.py",
        "rounding=ROUND_FLOOR))",
        "rounding=ROUND_CEILING))",
        A + "test_said.py",
    ),
)
