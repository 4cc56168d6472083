"""Faults in what somebody reads: a table's text, a sentence, a command's answer, an account."""

from fault import Fault, of_kind

PRINTED = "tests/reporting/test_same_numbers.py"
HEADLINE = "tests/reporting/test_headline.py"
RECOMMEND = "tests/choosing/test_recommend.py"
TOTALS = "tests/analysis/test_total_accounts.py"
SCALED = "tests/analysis/test_scaled_accounts.py"
CLAIMS = "tests/analysis/test_costs_claimed.py"
GRIDS = "tests/analysis/test_accounts.py"


def _recommend(name: str, old: str) -> Fault:
    name = f"a recommended {name} is priced at the usual delta"
    return Fault(name, "cli/recommend.py", old, old.replace(" delta", " options.DELTA"), RECOMMEND)


REPORTED = of_kind(
    "reported",
    Fault(
        "what is chosen on one half is printed with the spread of the whole",
        "reporting/tables/one_budget.py",
        'labels.spread(row["cross_mean"], row["cross_std"])',
        'labels.spread(row["cross_mean"], row["std"])',
        PRINTED,
    ),
    Fault(
        "the luck of a search that stops is printed as its spread over seeds",
        "reporting/tables/search_outcome.py",
        'labels.number(stopped.get("luck"), ".2f")',
        'labels.number(stopped.get("std"), ".2f")',
        PRINTED,
    ),
    Fault(
        "the best guess is printed with the final run's noise",
        "reporting/tables/linear_scaling.py",
        'labels.number(row["guess_noise_multiplier"], ".3f")',
        'labels.number(row["noise_multiplier"], ".3f")',
        PRINTED,
    ),
    Fault(
        "what a larger grid costs names the size of Online's grid at another k",
        "reporting/page/headline.py",
        'same = (noise["dataset"] == most["dataset"]) & (noise["k"] == most["k"])',
        'same = noise["dataset"] == most["dataset"]',
        PRINTED,
    ),
    Fault(
        "of methods that are equally good in the paper one alone is counted",
        "reporting/page/headline.py",
        'in rows.loc[rows["mean"] == best, "method"]:',
        'in rows.loc[rows["mean"] == best, "method"].iloc[:1]:',
        HEADLINE,
    ),
    Fault(
        "a lead is held against the spread of one method alone",
        "reporting/page/headline.py",
        'both = math.hypot(first["std"], second["std"])',
        'both = max(first["std"], second["std"])',
        HEADLINE,
    ),
    Fault(
        "a best point is printed with the diverged runs of its whole grid",
        "reporting/tables/cells.py",
        "{row['best_diverged']} of its {row['best_runs']} runs",
        "{row['diverged']} of its {row['runs']} runs",
        "tests/reporting/test_tables.py",
    ),
    Fault(
        "guesses of one seed are sure to beat a search of one",
        "analysis/guesses.py",
        ".fillna(math.inf)",
        ".fillna(0.0)",
        "tests/analysis/test_guesses.py",
    ),
    Fault(
        "that a method diverges is judged by grids that the paper does not have, too",
        "analysis/evidence.py",
        'runs = runs[(runs["epsilon"] == epsilon) & runs["k"].isin(cells["k"])]',
        'runs = runs[runs["epsilon"] == epsilon]',
        CLAIMS,
    ),
    Fault(
        "two per cent more noise pass for one",
        "analysis/costs_claimed.py",
        "more <= at_most + 1e-4",
        "more <= at_most + 1e-2",
        CLAIMS,
    ),
    Fault(
        "what the system's noise gave is trained again and judged",
        "verification/again.py",
        ' and cohort.randomness == "seeded"',
        "",
        "tests/verification/test_again.py",
    ),
    Fault(
        "the metric over the noise is that of the longest runs",
        "analysis/noise.py",
        "key=lambda epochs: (epochs != PAPER_EPOCHS, -epochs))",
        "key=lambda epochs: -epochs)",
        "tests/reporting/test_grid_figures.py",
    ),
)

ACCOUNTS = of_kind(
    "books",
    _recommend("search that stops", "stopped.noise_multiplier(epsilon, delta)"),
    _recommend("linear scaling", "scaled.noise_multipliers(epsilon, delta)"),
    _recommend("grid", "noise_multiplier(\n            epsilon, delta\n"),
    Fault(
        "a grid of which nobody knows the size is no error of `oso account`",
        "cli/account.py",
        "    require_clear(grids)\n",
        "",
        "tests/cli/test_account.py",
    ),
    Fault(
        "going on is priced by another accountant than was named",
        "private/budget.py",
        "return epsilon_of([*spent, more], delta, accountant)",
        "return epsilon_of([*spent, more], delta)",
        "tests/private/test_train_private.py",
    ),
    Fault(
        "own data: studies of other batch sizes are charged as one",
        "analysis/total_accounts.py",
        '"examples", "batch_size", "epochs"),',
        '"examples", "epochs"),',
        TOTALS,
    ),
    Fault(
        "own data: studies of other numbers of runs are charged as one",
        "analysis/total_accounts.py",
        '*("budget_runs", "data_version"),',
        '*("data_version",),',
        TOTALS,
    ),
    Fault(
        "own data: a statement of two studies has the most noise",
        "analysis/data_statement.py",
        'float(rows["noise_multiplier"].min())',
        'float(rows["noise_multiplier"].max())',
        TOTALS,
    ),
    Fault(
        "own data: a statement prints the budget as what was spent",
        "analysis/data_statement.py",
        "({epsilon_text(self.epsilon)}, ",
        "({epsilon_text(self.budget)}, ",
        TOTALS,
    ),
    Fault(
        "linear scaling: searches in other precisions are one",
        "analysis/scaled_accounts.py",
        '"steps", "precision"),',
        '"steps"),',
        SCALED,
    ),
    Fault(
        "linear scaling: searches with other momenta are one",
        "analysis/scaled_accounts.py",
        '"delta", "momentum"),',
        '"delta"),',
        SCALED,
    ),
    Fault(
        "grids in other precisions are one",
        "analysis/accounts.py",
        '        "epochs",\n        "precision",\n',
        '        "epochs",\n',
        GRIDS,
    ),
    Fault(
        "grids of other batch sizes are one",
        "analysis/accounts.py",
        '        "examples",\n        "batch_size",\n',
        '        "examples",\n',
        GRIDS,
    ),
)

PRINTED_FAULTS = [*REPORTED, *ACCOUNTS]
