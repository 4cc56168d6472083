"""Faults of the comparison of ways to spend one budget: a number that is that of something else."""

from fault import Fault, of_kind

_FILE, _TEST = "analysis/one_budget.py", "tests/analysis/test_one_budget.py"


def _fault(name: str, old: str, new: str) -> Fault:
    return Fault(name, _FILE, old, new, _TEST)


ONE_BUDGET = of_kind(
    "reported",
    _fault(
        "any guess passes as the default",
        "mine &= np.isclose(rows[axis].astype(float), value, rtol=1e-4, atol=0)",
        "mine &= rows[axis].astype(float) > 0 * value",
    ),
    _fault(
        "a default counts under any schedule",
        "laid_over(default.laid)",
        "laid_over(None)",
    ),
    _fault(
        "of a default the guess with the best k counts",
        'cell.sort_values(["seeds", "k"], ascending=[False, True])',
        'cell.sort_values(["mean", "k"], ascending=[False, True])',
    ),
    _fault(
        "of a method's grids the largest counts",
        '.sort_values(["part", "lacks", "k"])',
        '.sort_values(["part", "lacks", "k"], ascending=[True, True, False])',
    ),
    _fault(
        "a part that lacks the paper's point stands for a method",
        '.sort_values(["part", "lacks", "k"])',
        '.sort_values(["part", "k"])',
    ),
    _fault(
        "a default is judged by the half that chose its checkpoint",
        '(values["value_even"] + values["value_odd"]) / 2',
        '(values["chosen_even"] + values["chosen_odd"]) / 2',
    ),
    _fault(
        "a default is judged by one half alone",
        '(values["value_even"] + values["value_odd"]) / 2',
        'values["value_even"]',
    ),
    _fault(
        "lower is a gain where higher is better",
        'sign = 1 if is_higher_better(row["metric"]) else -1',
        "sign = 1",
    ),
    _fault(
        "a default that was chosen here passes as free",
        '"seen": row["dataset"] in default.seen,',
        '"seen": False,',
    ),
    _fault(
        "a part of a grid passes as the whole",
        '"whole": not row["part"],',
        '"whole": True,',
    ),
    _fault(
        "a gain is over a part of a grid",
        'if not (row["whole"] and theirs["whole"]):',
        'if not row["whole"]:',
    ),
    _fault(
        "a part of a grid has a gain",
        'if not (row["whole"] and theirs["whole"]):',
        'if not theirs["whole"]:',
    ),
    _fault(
        "trials of the machinery pass as a search",
        'best = best[(best["size"] > 1) & _long_enough(best)]',
        'best = best[best["size"] > 0]',
    ),
    _fault(
        "a default's other value is of all its settings",
        'cross.loc[cross["point"] == row["point"], "cross"]',
        'cross.loc[cross["cell"] == row["cell"], "cross"]',
    ),
    _fault(
        "a default is compared with another epsilon's search",
        'references.get((row["dataset"], row["epsilon"]))',
        'next((one for at, one in references.items() if at[0] == row["dataset"]), None)',
    ),
)
