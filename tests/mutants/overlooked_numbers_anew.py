"""Faults of the reported numbers that no test had reached: ties, edges, what is of others."""

from fault import Fault

_GUESSES = "tests/analysis/test_guesses_at_edges.py"
_EVIDENCE = "tests/analysis/test_evidence_of_its_own.py"
_PROBES = "tests/analysis/test_probes_judged.py"
_DIVERGED = "tests/analysis/test_points_that_diverged.py"
_PANELS = "tests/reporting/test_panels_of_budgets.py"
_COSINES = "tests/reporting/test_cosine_figures.py"

_GUESSED = [
    Fault(
        "a guess that is as good as the search beats it",
        "analysis/guesses.py",
        "zip(HOW, (gain > 0, ",
        "zip(HOW, (gain >= 0, ",
        _GUESSES,
    ),
    Fault(
        "a guess that is surely as good as the search may not be",
        "analysis/guesses.py",
        "gain + half >= 0",
        "gain + half > 0",
        _GUESSES,
    ),
    Fault(
        "a decade of guesses is not at least a decade",
        "analysis/guesses.py",
        "searched & (surely >= decades)).all()",
        "searched & (surely > decades)).all()",
        _GUESSES,
    ),
    Fault(
        "a question fails where a decade of guesses is possible",
        "analysis/guesses.py",
        "(whole & (possibly < decades)).any()",
        "(whole & (possibly <= decades)).any()",
        _GUESSES,
    ),
]

_JUDGED = [
    Fault(
        "a step's time is held against any rival's",
        "analysis/costs_claimed.py",
        '        rows = rows[rows["rival"] == baseline]\n',
        "",
        _EVIDENCE,
    ),
    Fault(
        "a second query's price is that of every method's runs",
        "analysis/costs_claimed.py",
        'runs = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]\n'
        "        runs = runs.dropna",
        'runs = runs[runs["dataset"] == dataset]\n        runs = runs.dropna',
        _EVIDENCE,
    ),
    Fault(
        "a claim's number of grids counts those of one seed",
        "analysis/evidence.py",
        '"grids": len(usable)',
        '"grids": len(both)',
        _EVIDENCE,
    ),
    Fault(
        "of points of the paper's some are counted that are in no mean",
        "analysis/evidence.py",
        'int(usable["at_paper"].sum())',
        'int(both["at_paper"].sum())',
        _EVIDENCE,
    ),
    Fault(
        "where the paper's point has no value nobody knows which is better",
        "analysis/cell_verdicts.py",
        "        return verdicts.OTHER\n    there",
        "        return verdicts.UNDECIDED\n    there",
        _DIVERGED,
    ),
    Fault(
        "of one seed at either point both are as good",
        "analysis/cell_verdicts.py",
        "    if gap is None:\n        return verdicts.UNDECIDED",
        "    if gap is None:\n        return verdicts.AS_GOOD",
        _DIVERGED,
    ),
    Fault(
        "a point five per cent off is the paper's own",
        "analysis/cells.py",
        "SAME_POINT = 0.02",
        "SAME_POINT = 0.05",
        "tests/analysis/test_cells_by_every_rule.py",
    ),
    Fault(
        "a run five per cent off is one of the paper's best",
        "study/paper_points.py",
        "math.log(1.02)",
        "math.log(1.05)",
        "tests/study/test_paper_points.py",
    ),
    Fault(
        "a user's own data decide which default is the surest",
        "analysis/surest_default.py",
        '    rows = rows[rows["dataset"].isin(MARGINS)]\n',
        "",
        "tests/analysis/test_surest_default.py",
    ),
    Fault(
        "a tolerance is a share of what came out again",
        "verification/verdict.py",
        "SHARE * abs(best)",
        "SHARE * abs(again)",
        "tests/verification/test_tolerances.py",
    ),
    Fault(
        "deviations of two methods add up instead of their variances",
        "reporting/page/headline.py",
        'math.hypot(first["std"], second["std"])',
        'first["std"] + second["std"]',
        "tests/reporting/test_ranked.py",
    ),
    Fault(
        "a method is ranked against one epoch of Online",
        "reporting/tables/beyond.py",
        'and are_alike(row, {name: row[f"{name}_online"] for name in ALIKE})',
        'and row["precision"] == row["precision_online"]',
        "tests/reporting/test_ranked.py",
    ),
]

_CELLS = "tests/analysis/test_cells_by_every_rule.py"
_BESIDE_THE_PAPERS = [
    Fault(
        "by cross-selection runs of any setting stand at the paper's point",
        "analysis/cells.py",
        'crossed = crossed[crossed["point"].isin(points["point"])]',
        "crossed = crossed.copy()",
        _CELLS,
    ),
    Fault(
        "runs of any setting stand at the paper's point",
        "analysis/cells.py",
        "points = main_variants(study.points)",
        "points = study.points",
        _CELLS,
    ),
    Fault(
        "a cell that was not run is evidence",
        "analysis/evidence.py",
        'self.cells[self.cells["status"] != NOT_RUN]',
        "self.cells",
        "tests/analysis/test_claims.py",
    ),
    Fault(
        "a grid is as large as by the design, whatever its budget says",
        "analysis/study.py",
        "known = self._grid_sizes.get((dataset, method, k))",
        "known = None",
        "tests/analysis/test_budgets.py",
    ),
]

_MEASURED = [
    Fault(
        "cosines are of twenty realisations, however many there were",
        "analysis/optimal_threshold.py",
        'int(row["realisations"])',
        "20",
        _PROBES,
    ),
    Fault(
        "the first step that was looked at may say otherwise",
        "analysis/optimal_threshold.py",
        "HOLDS and FAILS in alone",
        "HOLDS and FAILS in alone[2:]",
        _PROBES,
    ),
    Fault(
        "signs are counted in the order of the rows",
        "analysis/steering.py",
        'evaluations[evaluations["split"] == "test"].sort_values("step")',
        'evaluations[evaluations["split"] == "test"]',
        _PROBES,
    ),
    Fault(
        "cosines of two methods pass as one run's",
        "analysis/measured.py",
        '["dataset", "method", "k", "epsilon", "learning_rate"]].drop',
        '["dataset", "k", "epsilon", "learning_rate"]].drop',
        _COSINES,
    ),
    Fault(
        "cosines of two data sets pass as one run's",
        "analysis/measured.py",
        '["dataset", "method", "k", "epsilon", "learning_rate"]].drop',
        '["method", "k", "epsilon", "learning_rate"]].drop',
        _COSINES,
    ),
]

_COUNTED = [
    Fault(
        "lines that left the grid are counted where no final run was made",
        "analysis/linear_scaling.py",
        'int(taken["beyond"].sum())',
        'int(seeds["beyond"].sum())',
        "tests/analysis/test_linear_scaling_counts.py",
    ),
    Fault(
        "of a grid without a value a search surely comes to something",
        "analysis/random_stopping.py",
        'row | {"nothing": 1.0}',
        'row | {"nothing": 0.0}',
        "tests/analysis/test_nothing_drawn.py",
    ),
    Fault(
        "`oso account` counts a total as a grid",
        "cli/account.py",
        "count = sum(not grid.total for grid in grids)",
        "count = len(grids)",
        "tests/cli/test_accounts_counted.py",
    ),
]

_KEPT = [
    Fault(
        "a search that no noise meets is stored as one that needs none",
        "analysis/search_costs.py",
        'float(row["noise_multiplier"] or "nan")',
        'float(row["noise_multiplier"] or "0")',
        "tests/analysis/test_search_costs.py",
    ),
    Fault(
        "cosines are kept with three digits",
        "probe/record.py",
        "for row in similarities]), 6)",
        "for row in similarities]), 3)",
        "tests/probe/test_recorded.py",
    ),
    Fault(
        "of rows that are wrong in two ways the most frequent way is counted",
        "cli/verify.py",
        "wrong = sum(counts[text] for text in WRONG)",
        "wrong = max(counts[text] for text in WRONG)",
        "tests/cli/test_verify.py",
    ),
]

_DRAWN = [
    Fault(
        "an axis names its ticks by one digit",
        "reporting/figures/canvas.py",
        'FuncFormatter(lambda value, _: f"{value:g}")',
        'FuncFormatter(lambda value, _: f"{value:.1g}")',
        "tests/reporting/test_axes.py",
    ),
    Fault(
        "over the noise a line joins searches by two rules",
        "reporting/figures/metric_over_noise.py",
        'cells["method"].isin(labels.METHODS) & (cells["selection"] == COMPOSITION)',
        'cells["method"].isin(labels.METHODS) & (cells["selection"] != "")',
        "tests/reporting/test_axes.py",
    ),
    Fault(
        "half of a grid is too little for a map",
        "reporting/figures/grid.py",
        "and len(cell) >= _ENOUGH *",
        "and len(cell) > _ENOUGH *",
        "tests/reporting/test_axes.py",
    ),
    Fault(
        "a panel of guesses has those of larger budgets, too",
        "reporting/figures/no_search.py",
        'here = rows[rows["epsilon"] == epsilon]\n        for method, axes',
        'here = rows[rows["epsilon"] >= epsilon]\n        for method, axes',
        _PANELS,
    ),
    Fault(
        "NoDP's curve stands in the first panel alone",
        "reporting/figures/over_steps.py",
        '        _curves(panel, free, "value"',
        '        _curves(panel, free if panel is axes[0] else free[:0], "value"',
        _PANELS,
    ),
    Fault(
        "a panel of a grid's map hides what ran of less than half of a grid",
        "reporting/figures/grid.py",
        """    points = points[
        points["method"].isin({method for method, _ in panels})
        & points["epsilon"].isin({epsilon for _, epsilon in panels})
    ]
""",
        """    pairs = zip(points["method"], points["epsilon"], strict=True)
    points = points[[pair in panels for pair in pairs]]
""",
        "tests/reporting/test_axes.py",
    ),
    Fault(
        "of several ratios of two noises the first alone is named",
        "reporting/figures/figure_02.py",
        'sorted(set(grids["ratio"].round(6)))',
        'sorted(set(grids["ratio"].round(6)))[:1]',
        "tests/reporting/test_search_cost_figures.py",
    ),
]

OVERLOOKED_NUMBERS_ANEW = [
    *_GUESSED,
    *_JUDGED,
    *_BESIDE_THE_PAPERS,
    *_MEASURED,
    *_COUNTED,
    *_KEPT,
    *_DRAWN,
]
