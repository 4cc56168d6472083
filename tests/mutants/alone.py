"""Faults of runs without a search: what they cost, and what they are taken for."""

from fault import Fault, of_kind

ACCOUNT = "tests/analysis/test_accounts_alone.py"
GUESSES, PLANNED = "tests/analysis/test_guesses.py", "tests/study/test_no_search.py"
_ACCOUNTS, _GUESSES = "analysis/accounts.py", "analysis/guesses.py"

ALONE = [
    *of_kind(
        "books",
        Fault(
            "a whole grid is priced as one run",
            "study/expand.py",
            "grid_runs=1 if way == SINGLE else len(grid)",
            "grid_runs=1",
            "tests/study/test_plan.py",
        ),
        Fault(
            "several runs pass as one without a search",
            "accounting/search.py",
            "if self.tuning_accounting == SINGLE and self.runs != 1:",
            "if self.tuning_accounting == SINGLE and self.runs < 1:",
            PLANNED,
        ),
        Fault(
            "a search's rows are charged one by one",
            _ACCOUNTS,
            'alone = first["selection"] == SINGLE',
            "alone = True",
            ACCOUNT,
        ),
        Fault(
            "of runs without a search the last seed alone is charged",
            _ACCOUNTS,
            'rows.groupby("run_id" if alone else "seed")',
            'rows[rows["seed"] == rows["seed"].max()].groupby("run_id" if alone else "seed")',
            f"{ACCOUNT} tests/analysis/test_accounts.py",
        ),
        Fault(
            "another search in one store passes as guesses",
            "results/other_search.py",
            "if cohort.selection == SINGLE:",
            "if cohort.selection != SINGLE:",
            "tests/bad_input/test_other_search.py",
        ),
        Fault(
            "a guess and a searched run share an identity",
            "study/identity.py",
            '*("dataset", "method", "k", "epsilon", "delta", "selection", "momentum"),',
            '*("dataset", "method", "k", "epsilon", "delta", "momentum"),',
            PLANNED,
        ),
    ),
    *of_kind(
        "reported",
        Fault(
            "guesses stand among a search's points",
            "analysis/study.py",
            'values[values["selection"] == COMPOSITION]',
            'values[values["selection"] != "random_stopping"]',
            GUESSES,
        ),
        Fault(
            "guesses stand in the figure over the noise",
            "analysis/noise.py",
            'study.values[study.values["selection"].isin(SEARCHES)]',
            "study.values",
            GUESSES,
        ),
        Fault(
            "a plan of guesses makes a grid small",
            "analysis/budgets.py",
            "if selection == RANDOM_STOPPING]",
            "if selection != COMPOSITION]",
            "tests/analysis/test_budgets.py",
        ),
        Fault(
            "a guess surely beats a search that it may lose to",
            _GUESSES,
            "gain - half > 0",
            "gain > 0",
            GUESSES,
        ),
        Fault(
            "a guess is said to win where lower is better and it is higher",
            _GUESSES,
            '    sign = 1 if is_higher_better(row["metric"]) else -1\n    beside["gain"]',
            '    sign = 1\n    beside["gain"]',
            GUESSES,
        ),
        Fault(
            "a guess is compared with Online's search instead of its own",
            _GUESSES,
            'guess["method"] if searched == "own" else searched',
            '"online"',
            GUESSES,
        ),
        Fault(
            "guesses cover a step more than they do",
            _GUESSES,
            "np.append(steps, steps[-1])) / 2",
            "np.append(steps, steps[-1]))",
            GUESSES,
        ),
        Fault(
            "the guesses that won at any value of the others are added up",
            _GUESSES,
            "dropna=False).sum().max())",
            "dropna=False).sum().sum())",
            GUESSES,
        ),
        Fault(
            "the question holds where it holds at one budget",
            _GUESSES,
            "(surely >= decades)).all()",
            "(surely >= decades)).any()",
            GUESSES,
        ),
        Fault(
            "too few seeds are said to decide",
            "analysis/evidence.py",
            "interval.half > distance",
            "interval.half > 2 * distance",
            "tests/analysis/test_seeds_needed.py",
        ),
    ),
]
