"""Faults that the tests of their room once did not see."""

from fault import Fault, of_kind

_TOTALS = "tests/analysis/test_total_accounts.py"
_VERDICTS = "tests/analysis/test_verdicts.py"

OVERLOOKED = [
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
            "steps that were not made may be of other batches",
            "private/paid.py",
            "(stopping is not None or not_made.sampling != ledger.sampling)",
            "stopping is not None",
            "tests/private/test_search_books.py",
        ),
        Fault(
            "a run's ledger may claim a hundredth more noise",
            "training/outcome.py",
            "rel_tol=1e-6",
            "rel_tol=1e-2",
            "tests/training/test_course.py",
        ),
        Fault(
            "books are taken up where one run of several has every step",
            "privacy/mechanism.py",
            "whole = all(",
            "whole = any(",
            "tests/privacy/test_mechanism_books.py",
        ),
    ),
    *of_kind(
        "restart",
        Fault(
            "half a batch of before goes into a resumed run's first sum",
            "opacus/sanitizing_optimizer.py",
            "        self.ledger = ledger\n        self._totals = None\n",
            "        self.ledger = ledger\n",
            "tests/opacus/test_release_through_opacus.py",
        ),
        Fault(
            "what goes on from two lengths of a training has one identity",
            "private/one_training.py",
            'f"{after.run_id}/{after.ledger.step_count}/{run_id}"',
            'f"{after.run_id}/{run_id}"',
            "tests/private/test_train_private.py",
        ),
    ),
    Fault(
        "an infinite bound of the losses tells an empty batch",
        "privacy/clipped_losses.py",
        ".clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        ".clamp(min=SMALLEST_THRESHOLD)",
        "tests/privacy/test_clipped_losses.py",
    ),
    *of_kind(
        "reported",
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
            "tests/analysis/test_claims.py",
        ),
        Fault(
            "an advice's interval is not told in margins",
            "choosing/recommend.py",
            "(one.gain - one.gain_half) / one.margin",
            "one.gain / one.margin - one.gain_half",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "bars of a figure over epsilon are errors of the mean",
            "reporting/figures/figures_03_to_11.py",
            "yerr=error, **look",
            "yerr=None if error is None else error / 5**0.5, **look",
            "tests/reporting/test_figures.py",
        ),
        Fault(
            "a lead over one seed is called sure",
            "reporting/page/headline.py",
            'min(first["seeds"], second["seeds"]) < 2',
            'max(first["seeds"], second["seeds"]) < 2',
            "tests/reporting/test_headline.py",
        ),
        Fault(
            "the winner of an error is the highest",
            "reporting/tables/checkpoint_rules.py",
            "ascending=[not higher, True]",
            "ascending=[False, True]",
            "tests/reporting/test_checkpoint_rules.py",
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
    ),
]
