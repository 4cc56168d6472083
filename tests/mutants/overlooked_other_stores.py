"""Of reports on other stores than the shipped one: single seeds, other momenta, budgets that are no
whole numbers, grids of another size, runs that are not alike, and what is laid over the steps."""

from fault import Fault, of_kind

_A, _R = "tests/analysis/", "tests/reporting/"
_KEYS, _POINTS, _NOISE = _A + "test_keys.py", _A + "test_points.py", _A + "test_noise.py"
_RELATIONS, _GUESSES = _A + "test_relations.py", _A + "test_guesses.py"
_STOPPED, _SCALED = _A + "test_random_stopping.py", _A + "test_linear_scaling.py"
_COUNTS, _COSTS = _A + "test_linear_scaling_counts.py", _A + "test_costs_claimed.py"
_BUDGET, _SIZES = _A + "test_one_budget.py", _A + "test_sizes_said.py"
_SUREST, _EDGES = _A + "test_surest_default.py", _A + "test_guesses_at_edges.py"
_TOLD, _LAID, _HEAD = (
    _R + "test_budgets_told.py",
    _R + "test_laid_cells.py",
    _R + "test_headline.py",
)
_RULES, _SUMMARY = _R + "test_checkpoint_rules.py", _R + "test_summary.py"

_OF_A_SETTING = (
    *("delta", "selection", "momentum", "sampling", "examples", "batch_size", "epochs"),
    *("noise_multiplier", "query_noise_multiplier", "precision", "settings"),
)


def _whole_number(where: str, file: str, old: str, tests: str = _TOLD) -> Fault:
    """A budget of 2.25 is told as 2."""
    assert old.count(":g") == 1
    return Fault(
        f"{where} has budgets in whole numbers", file, old, old.replace(":g", ":.0f"), tests
    )


OVERLOOKED_OTHER_STORES = of_kind(
    "reported",
    Fault(
        "one seed of the second of two methods is evidence",
        "analysis/evidence.py",
        'both[(both["seeds"] > 1) & (both["seeds_baseline"] > 1)]',
        'both[both["seeds"] > 1]',
        _RELATIONS,
    ),
    Fault(
        "one seed of the first of two methods is evidence",
        "analysis/evidence.py",
        'both[(both["seeds"] > 1) & (both["seeds_baseline"] > 1)]',
        'both[both["seeds_baseline"] > 1]',
        _RELATIONS,
    ),
    Fault(
        "guesses of two momenta are guesses of one search",
        "analysis/guesses.py",
        '[main_variants(alike) for _, alike in points.groupby("laid")]',
        '[alike for _, alike in points.groupby("laid")]',
        _GUESSES,
    ),
    *(
        Fault(
            f"runs that differ in {name} are of one setting",
            "analysis/keys.py",
            '("variant", CELL + VARIANT),',
            f'("variant", CELL + [name for name in VARIANT if name != "{name}"]),',
            _KEYS,
        )
        for name in _OF_A_SETTING
    ),
    Fault(
        "a map of the grid has the points of all settings",
        "reporting/figures/grid.py",
        "points = main_variants(study.points)",
        "points = study.points",
        _R + "test_grid_figures.py",
    ),
    Fault(
        "runs of two momenta are drawn in one search that stops",
        "analysis/random_stopping.py",
        'in main_variants(alike).groupby("cell", sort=False)',
        'in alike.groupby("cell", sort=False)',
        _STOPPED,
    ),
    *(
        Fault(
            f"a final run that differs in {name} is that of the trials",
            "analysis/linear_scaling.py",
            'if name not in ("settings", "noise_multiplier", "query_noise_multiplier")',
            f'if name not in ("settings", "noise_multiplier", "query_noise_multiplier", "{name}")',
            _SCALED,
        )
        for name in ("precision", "epochs", "delta", "batch_size")
    ),
    Fault(
        "scaled searches under two schedules are one way",
        "analysis/one_budget.py",
        '_NAMED = ["dataset", "epsilon", "way", "method", "laid", "distribution"]',
        '_NAMED = ["dataset", "epsilon", "way", "method", "distribution"]',
        _BUDGET,
    ),
    Fault(
        "a scaled search under a schedule passes as the plain one",
        "analysis/one_budget.py",
        'for name in (*CELL, "laid", "metric", "mean", "std", "seeds")},',
        'for name in (*CELL, "metric", "mean", "std", "seeds")}, "laid": "",',
        _BUDGET,
    ),
    Fault(
        "a part has the paper's point where another method's part has its own",
        "analysis/one_budget.py",
        '_POINT = ["dataset", "k", "epsilon", "method"]',
        '_POINT = ["dataset", "k", "epsilon"]',
        _BUDGET,
    ),
    Fault(
        "methods are compared under the distribution of another budget",
        "analysis/random_stopping.py",
        '_COMPARED = ["dataset", "k", "epsilon", "distribution"]',
        '_COMPARED = ["dataset", "k", "distribution"]',
        _STOPPED,
    ),
    Fault(
        "runs on another data set say whether a method diverges",
        "analysis/evidence.py",
        'runs[(runs["dataset"] == dataset) & (runs["method"] == method)]',
        'runs[runs["method"] == method]',
        _COSTS,
    ),
    Fault(
        "advice rests on the data sets that have the seeds",
        "choosing/recommend.py",
        "    datasets = {one.dataset for one in here}",
        "    datasets = {one.dataset for one in here if one.seeds >= SEEDS}",
        "tests/choosing/test_recommend.py",
    ),
    Fault(
        "the demo's margin is Fashion-MNIST's",
        "analysis/verdicts.py",
        '"glyphs": 1.3,',
        '"glyphs": 0.4,',
        _A + "test_verdicts.py",
    ),
    Fault(
        "a grid of unknown size has as many points as runs",
        "analysis/noise.py",
        'row["points"] if size is None else size',
        'row["cell_runs"] if size is None else size',
        _NOISE,
    ),
    Fault(
        "the time of any method's step is the claimed one's",
        "analysis/costs_claimed.py",
        'rows[(rows["dataset"] == dataset) & (rows["method"] == method)]',
        'rows[rows["dataset"] == dataset]',
        _COSTS,
    ),
    Fault(
        "where all diverged a threshold is best",
        "analysis/points.py",
        'best.loc[best["mean"].isna(), POINT] = np.nan',
        'best.loc[best["mean"].isna(), POINT[::2]] = np.nan',
        _POINTS,
    ),
    _whole_number(
        "who is best", "reporting/page/headline.py", "at = f\"at ε = {first['epsilon']:g} \"", _HEAD
    ),
    _whole_number(
        "what a larger grid costs", "reporting/page/headline.py", "ε = {most['epsilon']:g}", _HEAD
    ),
    _whole_number("how wide guesses win", "analysis/guesses.py", "ε = {row['epsilon']:g}"),
    _whole_number("which grids ran in part", "reporting/figures/captions.py", "{e:g}"),
    _whole_number("the surest default", "reporting/written.py", "ε = {row['epsilon']:g}"),
    _whole_number("a panel of ways", "reporting/figures/one_budget.py", "ε = {epsilon:g}"),
    _whole_number("a row of guesses", "reporting/figures/no_search.py", "ε = {epsilon:g}"),
    _whole_number("a map of the grid", "reporting/figures/grid.py", "ε = {epsilon:g}"),
    _whole_number("a panel over the steps", "reporting/figures/over_steps.py", "ε = {epsilon:g}"),
    _whole_number("a cell's name", "reporting/tables/cells.py", "eps{epsilon:g}"),
    Fault(
        "of the runs behind a value five are named",
        "reporting/tables/cells.py",
        ".get(cell_key(row), [])",
        ".get(cell_key(row), [])[:5]",
        _TOLD,
    ),
    # Grids of another size than the paper's.
    Fault(
        "a trial has the paper's grid, whatever its rows say",
        "analysis/one_budget.py",
        'of_trial = row["grid_runs"]',
        'of_trial = study.grid_size(row["dataset"], row["method"], row["k"]) or 0',
        _A + "test_one_budget_runs.py",
    ),
    Fault(
        "nobody asks the rows how large their grid is",
        "analysis/study.py",
        "return _said_sizes(self.runs) | grid_sizes(self.budget)",
        "return grid_sizes(self.budget)",
        _SIZES,
    ),
    Fault(
        "rows say more of a grid's size than its plan",
        "analysis/study.py",
        "return _said_sizes(self.runs) | grid_sizes(self.budget)",
        "return grid_sizes(self.budget) | _said_sizes(self.runs)",
        _SIZES,
    ),
    Fault(
        "some rows say how large the grid of all is",
        "analysis/study.py",
        'mine["size"].notna().all() and mine["size"].nunique() == 1',
        'mine["size"].nunique() == 1',
        _SIZES,
    ),
    Fault(
        "of rows that disagree the first says how large a grid is",
        "analysis/study.py",
        'mine["size"].notna().all() and mine["size"].nunique() == 1',
        'mine["size"].notna().all()',
        _SIZES,
    ),
    Fault(
        "a search that stops says how large the one paid for whole is",
        "analysis/study.py",
        "for selection in (RANDOM_STOPPING, COMPOSITION):",
        "for selection in (COMPOSITION, RANDOM_STOPPING):",
        _SIZES,
    ),
    Fault(
        "a grid of unknown size is a part",
        "analysis/cell_verdicts.py",
        'pd.notna(row["grid_size"]) and row["grid_points"] < row["grid_size"]',
        'pd.isna(row["grid_size"]) or row["grid_points"] < row["grid_size"]',
        _A + "test_whole_grids.py",
    ),
    Fault(
        "one seed each has an interval of no numbers",
        "reporting/tables/one_budget.py",
        'if not labels.missing(row["gain_half"]):',
        "if True:",
        _BUDGET,
    ),
    # Runs that are not alike.
    *(
        Fault(
            f"runs are alike that differ in {name}",
            "analysis/keys.py",
            'ALIKE = ["precision", "epochs", "delta"]',
            f"ALIKE = {[other for other in ('precision', 'epochs', 'delta') if other != name]}",
            f"{_EDGES} {_COUNTS}",
        )
        for name in ("precision", "epochs", "delta")
    ),
    Fault(
        "a gain is over a search of another length or delta",
        "analysis/one_budget.py",
        "if not are_alike(row, theirs):",
        'if row["precision"] != theirs["precision"]:',
        _BUDGET,
    ),
    Fault(
        "a scaled search stands beside a search of other runs",
        "analysis/linear_scaling.py",
        "if are_alike(row, own):",
        "if True:",
        _COUNTS,
    ),
    Fault(
        "a scaled search stands beside a guess of other runs",
        "analysis/linear_scaling.py",
        "if are_alike(row, guess):",
        "if True:",
        _COUNTS,
    ),
    Fault(
        "defaults of other runs are held against each other",
        "analysis/surest_default.py",
        "    rows = _of_one_kind(rows)\n",
        "",
        _SUREST,
    ),
    Fault(
        "of defaults the kind counts of which there are fewest",
        "analysis/surest_default.py",
        'kinds.sort_values("size", ascending=False, kind="stable")',
        'kinds.sort_values("size", kind="stable")',
        _SUREST,
    ),
    Fault(
        "runs that are not alike compete",
        "analysis/checkpoint_rule_gains.py",
        '["dataset", "k", "epsilon", *ALIKE]',
        '["dataset", "k", "epsilon"]',
        _RULES,
    ),
    Fault(
        "runs of one epoch compete",
        "analysis/checkpoint_rule_gains.py",
        'rows[rows["whole"].astype(bool) & np.array(long, dtype=bool)]',
        'rows[rows["whole"].astype(bool)]',
        _RULES,
    ),
    Fault(
        "runs that are not alike are ranked",
        "reporting/page/headline.py",
        "alike = rows[kinds == kinds[counts.idxmax()]]",
        "alike = rows",
        _HEAD,
    ),
    Fault(
        "of two that are not alike the first was run alone",
        "reporting/page/headline.py",
        "if 1 == counts.max() < len(rows):",
        "if False:",
        _HEAD,
    ),
    Fault(
        "in a terminal runs that are not alike have a best",
        "reporting/summary.py",
        "best = _best(rows) if ran_alike and not any(part.values()) else None",
        "best = _best(rows) if not any(part.values()) else None",
        _SUMMARY,
    ),
    Fault(
        "a search that stops stands beside one of other runs",
        "analysis/random_stopping.py",
        'pd.DataFrame(rows)[[*CELL, "laid", *ALIKE]]',
        'pd.DataFrame(rows)[[*CELL, "laid"]]',
        _STOPPED,
    ),
    Fault(
        "a search that stops stands beside one under a schedule",
        "analysis/random_stopping.py",
        'pd.DataFrame(rows)[[*CELL, "laid", *ALIKE]]',
        "pd.DataFrame(rows)[[*CELL, *ALIKE]]",
        _STOPPED,
    ),
    Fault(
        "each distribution of a cell stands beside its one search",
        "reporting/tables/search_outcome.py",
        "if cell in composed.index and are_alike(stopped, composed.loc[cell]):",
        "if cell in composed.index:",
        _STOPPED,
    ),
    # What is laid over the steps.
    Fault(
        "a search under a schedule has the plain method's name in a table",
        "reporting/tables/cells.py",
        '"method": name_of(row["method"], row["laid"]),',
        '"method": labels.method_label(row["method"]),',
        _LAID,
    ),
    Fault(
        "a search under a schedule has the plain method's name in a terminal",
        "reporting/summary.py",
        "name_of(row.method, row.laid)",
        'name_of(row.method, "")',
        _LAID,
    ),
    Fault(
        "a search under a schedule has the plain method's name where it is best",
        "reporting/page/headline.py",
        'return name_of(cell["method"], cell["laid"])',
        'return name_of(cell["method"], "")',
        _LAID,
    ),
    Fault(
        "no note says what is laid over the steps",
        "reporting/tables/cells.py",
        'data[data["laid"] != ""]',
        'data[data["laid"] == "anything"]',
        _LAID,
    ),
    Fault(
        "a value under a schedule is held against the paper's",
        "analysis/cell_verdicts.py",
        '    places = [place for place in places if not rows[place]["laid"]]\n',
        "",
        _LAID,
    ),
    Fault(
        "a best point under a schedule is held against the paper's",
        "analysis/cell_verdicts.py",
        'if row["laid"]:',
        "if False:",
        _LAID,
    ),
    Fault(
        "a distance from the paper is that of a search under a schedule",
        "analysis/cell_verdicts.py",
        'return not row["laid"] and (',
        "return bool(",
        _LAID,
    ),
    Fault(
        "searches under a schedule are evidence for the paper's claims",
        "analysis/evidence.py",
        "return plain and same and (",
        "return same and (",
        f"{_RELATIONS} {_LAID}",
    ),
    Fault(
        "guesses are held against a search under a schedule",
        "analysis/guesses.py",
        "best = study.plain_best.set_index(CELL)",
        "best = study.best.set_index(CELL)",
        _LAID,
    ),
    Fault(
        "a scaled search is held against a search under a schedule",
        "analysis/linear_scaling.py",
        "best = study.plain_best.set_index(CELL)",
        "best = study.best.set_index(CELL)",
        _COUNTS,
    ),
    Fault(
        "methods are ranked against Online under a schedule",
        "reporting/tables/beyond.py",
        '        and not row["laid_online"]\n',
        "",
        _LAID,
    ),
    Fault(
        "gains are over Online's search under a schedule",
        "analysis/one_budget.py",
        'return (row["way"], row["method"], row["laid"]) == (COMPOSITION, "online", "")',
        'return (row["way"], row["method"]) == (COMPOSITION, "online")',
        _BUDGET,
    ),
    Fault(
        "a search under a schedule hides the plain one over another grid",
        "analysis/one_budget.py",
        'best.drop_duplicates(["dataset", "epsilon", "method", "laid"])',
        'best.drop_duplicates(["dataset", "epsilon", "method"])',
        _BUDGET,
    ),
    Fault(
        "a default that ran somewhere alone is the only one that is judged",
        "analysis/surest_default.py",
        'transform("size") > 1]',
        'transform("size") > 0]',
        "tests/analysis/test_surest_default.py",
    ),
)
