"""Faults of verdicts, claims and summaries that the tests of their room once did not see."""

from fault import Fault, of_kind

_VERDICTS = "tests/analysis/test_verdicts.py"

OVERLOOKED_VALUES = [
    *of_kind(
        "reported",
        Fault(
            "the best of a whole grid is compared with a part's",
            "analysis/evidence.py",
            '.where(whole, both[f"at_paper_{name}{end}"])',
            "",
            "tests/analysis/test_claims.py",
        ),
        Fault(
            "a grid that trains does not where its best point diverged later",
            "analysis/cell_verdicts.py",
            'row["diverged"] < row["runs"]',
            'row["best_diverged"] < row["best_runs"]',
            _VERDICTS,
        ),
        Fault(
            "a neighbour of a small learning rate is the paper's own point",
            "analysis/cells.py",
            "theirs[name], rtol=SAME_POINT, atol=0)]",
            "theirs[name], atol=SAME_POINT)]",
            _VERDICTS,
        ),
        Fault(
            "grids of one seed decide a claim",
            "analysis/evidence.py",
            "len(usable) < at_least * len(design)",
            "len(both) < at_least * len(design)",
            "tests/analysis/test_relations.py",
        ),
        Fault(
            "a curve's mean is taken of finished runs and of others apart",
            "analysis/trajectories.py",
            'groupby(["method", "step"])[column]',
            'groupby(["method", "step", "status"])[column]',
            "tests/analysis/test_points.py",
        ),
        Fault(
            "a setting's seeds are those of one point",
            "analysis/coverage.py",
            '"seeds": group["seed"].nunique()',
            '"seeds": group.groupby("point")["seed"].nunique().max()',
            "tests/analysis/test_points.py",
        ),
        Fault(
            "the costs are those of the first row's setting",
            "analysis/search_costs.py",
            "known[facts].value_counts().index[0]",
            "known[facts].iloc[0]",
            "tests/analysis/test_search_costs.py",
        ),
        Fault(
            "a point that has one of the paper's hyperparameters is its own",
            "analysis/cell_verdicts.py",
            "if all(np.isclose(",
            "if any(np.isclose(",
            "tests/analysis/test_verdicts.py",
        ),
        Fault(
            "the paper's own point has the seeds of our best one",
            "analysis/cell_verdicts.py",
            'int(row["at_paper_seeds"]))',
            'int(row["seeds"]))',
            "tests/analysis/test_verdicts.py",
        ),
        Fault(
            "by cross-selection a grid that diverged later trains",
            "analysis/evidence.py",
            '                gone |= cells["diverged"] == cells["runs"]\n',
            "                pass\n",
            "tests/analysis/test_costs_claimed.py",
        ),
        Fault(
            "that a method diverges needs one grid whole",
            "analysis/evidence.py",
            '(cells["grid_points"] >= cells["grid_size"]).all()',
            '(cells["grid_points"] >= cells["grid_size"]).any()',
            "tests/analysis/test_costs_claimed.py",
        ),
        Fault(
            "of several claims one that holds hides one that is undecided",
            "analysis/evidence.py",
            "(FAILS, NOT_RUN, UNDECIDED, NOTHING, HOLDS)",
            "(FAILS, NOT_RUN, NOTHING, HOLDS, UNDECIDED)",
            "tests/analysis/test_relations.py",
        ),
        Fault(
            "the device with the highest ratio speaks, however sure it is",
            "analysis/evidence.py",
            'rows.loc[rows["high"].idxmax()]',
            'rows.loc[rows["ratio"].idxmax()]',
            "tests/analysis/test_costs_claimed.py",
        ),
        Fault(
            "the cheapest second query counts",
            "analysis/evidence.py",
            "(1 / np.sqrt(1 - share**2) - 1).max()",
            "(1 / np.sqrt(1 - share**2) - 1).min()",
            "tests/analysis/test_costs_claimed.py",
        ),
        Fault(
            "a claim by cross-selection has the spread of the paper's rule",
            "analysis/claims.py",
            'std=cells["cross_std"]',
            'std=cells["std"]',
            "tests/analysis/test_claims.py",
        ),
        Fault(
            "own data: a statement has the smaller sampling rate",
            "analysis/data_statement.py",
            "float(rate.max())",
            "float(rate.min())",
            "tests/analysis/test_total_accounts.py",
        ),
    ),
]
