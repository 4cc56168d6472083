"""More faults of the reported numbers that no test had reached: limits, ties, what is let in."""

from fault import Fault, of_kind

_STATISTICS = "tests/analysis/test_statistics.py"
_POINTS = "tests/analysis/test_points.py"
_RELATIONS = "tests/analysis/test_relations.py"
_RULES = "tests/results/test_column_rules.py"
_PARTS = "tests/analysis/test_whole_grids.py"
_PREPARED = "tests/data/test_prepared.py"

_JUDGED = [
    Fault(
        "a value may be half a margin too low and pass as consistent",
        "analysis/verdicts.py",
        "if -comparison.margin < gap.low",
        "if -1.5 * comparison.margin < gap.low",
        _STATISTICS,
    ),
    Fault(
        "of what is called different six per cent may be so by chance",
        "analysis/verdicts.py",
        "FALSE_SHARE = 0.05",
        "FALSE_SHARE = 0.06",
        _STATISTICS,
    ),
    Fault(
        "of equally good points the last one is called best",
        "analysis/points.py",
        'best = main.loc[score.groupby(main["cell"]).idxmax()]',
        'best = main.loc[score[::-1].groupby(main["cell"]).idxmax()]',
        _POINTS,
    ),
    Fault(
        "half of the paper's grids decide no claim",
        "analysis/evidence.py",
        "if len(usable) < at_least * len(design):",
        "if len(usable) <= at_least * len(design):",
        _RELATIONS,
    ),
    Fault(
        "what is as good to the last digit is called better",
        "analysis/evidence.py",
        "(math.nextafter(0.0, 1.0), math.inf)",
        "(0.0, math.inf)",
        _RELATIONS,
    ),
    Fault(
        "the seeds that are there are those of one method",
        "analysis/evidence.py",
        "there = (sides[0].seeds + sides[1].seeds) / 2",
        "there = sides[0].seeds",
        "tests/analysis/test_seeds_needed.py",
    ),
    Fault(
        "runs of two epochs are ranked beside whole ones",
        "analysis/cells.py",
        "or epochs >= PAPER_EPOCHS",
        "or epochs > 1",
        _PARTS,
    ),
]

_PARTS_OF_GRIDS = [
    Fault(
        "another point is as good where its error is surely larger",
        "analysis/cell_verdicts.py",
        "if gap.low <= 0 <= gap.high else",
        "if 0 <= gap.high else",
        _PARTS,
    ),
    Fault(
        "claims are judged by runs of every setting",
        "analysis/study.py",
        'self.values[self.values["variant"].isin(main_variants(self.points)["variant"])]',
        'self.values[self.values["selection"] == COMPOSITION]',
        _PARTS,
    ),
    Fault(
        "one point more than was paid for passes",
        "analysis/cells.py",
        'ours["points"] > size:',
        'ours["points"] > size + 1:',
        _PARTS,
    ),
    Fault(
        "a grid that lacks one point is judged as a whole one",
        "analysis/cell_verdicts.py",
        'row["grid_points"] >= row["grid_size"])',
        'row["grid_points"] >= row["grid_size"] - 1)',
        _PARTS,
    ),
    Fault(
        "a grid that lacks one point is compared as a whole one",
        "analysis/evidence.py",
        'both[f"grid_points{end}"] >= both[f"grid_size{end}"])',
        'both[f"grid_points{end}"] >= both[f"grid_size{end}"] - 1)',
        _PARTS,
    ),
    Fault(
        "that a method diverges is known without the last point of its grid",
        "analysis/evidence.py",
        '(cells["grid_points"] >= cells["grid_size"]).all()',
        '(cells["grid_points"] >= cells["grid_size"] - 1).all()',
        _PARTS,
    ),
    Fault(
        "a grid that lacks one point is said to have run whole",
        "reporting/page/headline.py",
        'ran[ran["grid_points"] < ran["grid_size"]]',
        'ran[ran["grid_points"] < ran["grid_size"] - 1]',
        "tests/reporting/test_headline.py",
    ),
]

_LET_IN = [
    Fault(
        "a grid may be said to have no run",
        "results/row_claims.py",
        "type(size) is int and size > 0",
        "type(size) is int and size >= 0",
        "tests/results/test_every_row.py",
    ),
    Fault(
        "an average may be said to be of all weights alike",
        "results/row_claims.py",
        "not 0 < decay < 1",
        "not 0 < decay <= 1",
        "tests/results/test_every_row.py",
    ),
    Fault(
        "a budget may be said to be shared by no run",
        "results/protected.py",
        "type(number) is int and number > 0",
        "type(number) is int and number >= 0",
        "tests/results/test_every_row.py",
    ),
    Fault(
        "glyphs are turned further than those of the stored runs",
        "data/glyphs.py",
        "TURN = 12.0",
        "TURN = 15.0",
        "tests/data/test_glyphs.py",
    ),
    Fault(
        "glyphs have more noise than those of the stored runs",
        "data/glyphs.py",
        "NOISE = (0.02, 0.12)",
        "NOISE = (0.02, 0.13)",
        "tests/data/test_glyphs.py",
    ),
    Fault(
        "batches of one size are accounted for as drawn",
        "results/column_rules.py",
        'ColumnRule(words=("poisson",))',
        'ColumnRule(words=("poisson", "fixed_size"))',
        _RULES,
    ),
    Fault(
        "products may have been in float16",
        "results/column_rules.py",
        'words=("float32", "tf32", "bfloat16")',
        'words=("float32", "tf32", "bfloat16", "float16")',
        _RULES,
    ),
    Fault(
        "an accuracy of one hundredth above 1 passes",
        "results/column_rules.py",
        'pc.greater(table["value"], 1)',
        'pc.greater(table["value"], 1.01)',
        _RULES,
    ),
    Fault(
        "a row may have a step less than its epochs",
        "results/row_claims.py",
        'if row["steps"] != math.ceil(row["epochs"] * row["examples"] / row["batch_size"]):',
        'if math.ceil(row["epochs"] * row["examples"] / row["batch_size"]) - row["steps"]'
        " not in (0, 1):",
        "tests/results/test_every_row.py",
    ),
    Fault(
        "a row may be of another data set than was planned",
        "results/row_claims.py",
        '("dataset", "method", "k", "epsilon", "delta")}',
        '("method", "k", "epsilon", "delta")}',
        "tests/analysis/test_accounts_planned.py",
    ),
    Fault(
        "test labels that there are not pass",
        "data/prepared.py",
        "max(int(t.max()) for t in targets)",
        "int(arrays.train_targets.max())",
        _PREPARED,
    ),
    Fault(
        "training labels below zero pass",
        "data/prepared.py",
        "min(int(t.min()) for t in targets)",
        "int(arrays.test_targets.min())",
        _PREPARED,
    ),
    Fault(
        "test pixels of another scale pass",
        "data/prepared.py",
        "if low < 0 or high > 1:",
        "if low < 0 or (high > 1 and part is arrays.train_inputs):",
        _PREPARED,
    ),
    Fault(
        "training pixels below zero pass",
        "data/prepared.py",
        "if low < 0 or high > 1:",
        "if high > 1 or (low < 0 and part is arrays.test_inputs):",
        _PREPARED,
    ),
]

_SHOWN = of_kind(
    "reported",
    Fault(
        "a budget is printed with two digits",
        "labels.py",
        'else f"{epsilon:g}"',
        'else f"{epsilon:.2g}"',
        "tests/reporting/test_labels.py",
    ),
)

OVERLOOKED_ONCE_MORE_NUMBERS = [*_JUDGED, *_PARTS_OF_GRIDS, *_LET_IN, *_SHOWN]
