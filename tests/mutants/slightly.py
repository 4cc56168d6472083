"""Faults that a glance at the numbers does not show: books and reports, a little off."""

from fault import ACCOUNTS, A, Fault, T, in_mechanism, in_sampling, of_kind

EXACT = A + "test_books_exact.py"
ACCOUNT = "tests/analysis/test_accounts_exact.py"
REPORTED, STATISTICS = T + "test_reported.py", "tests/analysis/test_statistics.py"
VERDICTS = "tests/analysis/test_verdicts.py " + STATISTICS
_MERGED = "known == queries:"
_SHAPE = "RepeatAndSelectDpEvent(one, mean_runs, shape)"


def _merged(name: str, new: str) -> Fault:
    return Fault(name, "privacy/ledger.py", _MERGED, new, EXACT)


def _shapes(name: str, shape: str) -> Fault:
    new = f"RepeatAndSelectDpEvent(one, mean_runs, {shape})"
    return Fault(name, "accounting/search.py", _SHAPE, new, EXACT)


def _may_differ(name: str, columns: str) -> Fault:
    """Columns in which two rows of one run may differ."""
    old = "_WHERE_IT_RAN = [\n"
    return Fault(name, "results/collect.py", old, f"{old}    {columns},\n", ACCOUNT)


BOOKS = of_kind(
    "books",
    _merged(
        "steps of nearly the same noise are merged",
        "[round(q.noise_multiplier, 2) for q in known] == [\n"
        "            round(q.noise_multiplier, 2) for q in queries\n"
        "        ]:",
    ),
    _merged("steps are merged whose first sum is alike", "known[0] == queries[0]:"),
    _merged(
        "steps are merged whose sums have the same names",
        "[q.name for q in known] == [q.name for q in queries]:",
    ),
    Fault(
        "of a kind of step that comes again, the last count is priced",
        "privacy/ledger.py",
        "counted[self.sampling, nu] += count",
        "counted[self.sampling, nu] = count",
        EXACT,
    ),
    Fault(
        "noise is priced by three decimals",
        "accounting/accountants.py",
        "            releases[ledger.sampling, nu] += count\n",
        "            releases[ledger.sampling, round(nu, 3)] += count\n",
        f"{A}test_accountants.py {EXACT}",
    ),
    _shapes("shapes below one are priced as logarithmic", "shape if shape >= 1 else 0.0"),
    _shapes(
        "shapes between one and two are priced as geometric", "1.0 if 1 < shape < 2 else shape"
    ),
    _shapes("shapes are priced by one decimal", "shape if shape > 100 else round(shape, 1)"),
    in_sampling(
        "a ledger's rate has six decimals",
        '"sampling_rate": self.rate,',
        '"sampling_rate": round(self.rate, 6),',
        EXACT,
    ),
    Fault(
        "a ledger's rate may be one percent off",
        "results/row_claims.py",
        "rel_tol=1e-9",
        "rel_tol=1e-2",
        ACCOUNT,
    ),
    Fault(
        "a ledger's rate may be a hundred-thousandth off",
        "results/row_claims.py",
        "rel_tol=1e-9",
        "rel_tol=1e-5",
        ACCOUNT,
    ),
    Fault(
        "a row may claim a thousandth more noise than its ledger has",
        "results/row_claims.py",
        "(1 - 1e-6)",
        "(1 - 1e-3)",
        f"{ACCOUNT} {ACCOUNTS}",
    ),
    Fault(
        "a budget may be exceeded by one percent",
        "analysis/charges.py",
        "SLACK = 1 + 1e-9",
        "SLACK = 1.01",
        ACCOUNT,
    ),
    Fault(
        "a budget may be exceeded by a hundred-thousandth",
        "analysis/charges.py",
        "SLACK = 1 + 1e-9",
        "SLACK = 1 + 1e-5",
        ACCOUNT,
    ),
    in_mechanism(
        "a step may cost a thousandth more than was paid",
        "self.noise_multiplier * (1 - 1e-9)",
        "self.noise_multiplier * (1 - 1e-3)",
        EXACT,
    ),
    Fault(
        "a plan's noise is rounded to the nearest number",
        "study/plan.py",
        "math.ceil(nu * 1e5) / 1e5",
        "round(nu, 5)",
        ACCOUNT,
    ),
    _may_differ("two ledgers of one run pass", '"ledger"'),
    _may_differ("two ends of one run pass", '*("status", "diverged_at")'),
    _may_differ("two noises of one run pass", '"query_noise_multiplier"'),
)

REPORTS = of_kind(
    "reported",
    Fault(
        "seeds without a value are counted",
        "analysis/points.py",
        'groups["value"].agg(["mean", "std", "count"])',
        'groups["value"].agg(["mean", "std", "size"])',
        STATISTICS,
    ),
    Fault(
        "deviations are over n",
        "analysis/points.py",
        'groups["value"].agg(["mean", "std", "count"])',
        'groups["value"].agg(["mean", lambda seeds: seeds.std(ddof=0), "count"])',
        STATISTICS,
    ),
    Fault(
        "the cross rule counts seeds with a value one way",
        "analysis/points.py",
        'both.groupby("cell").agg(["mean", "std", "count"])',
        'both.groupby("cell").agg(["mean", "std", "size"])',
        STATISTICS,
    ),
    Fault(
        "the setting with the fewest runs is shown",
        "analysis/points.py",
        "ascending=[True, False, False, True]",
        "ascending=[True, False, True, True]",
        STATISTICS,
    ),
    Fault(
        "the setting with the most runs of one point is shown",
        "analysis/points.py",
        '["runs"].transform("sum")',
        '["runs"].transform("max")',
        STATISTICS,
    ),
    Fault(
        "a longer training passes as the paper's",
        "analysis/points.py",
        '(points["epochs"] == PAPER_EPOCHS)',
        '(points["epochs"] >= PAPER_EPOCHS)',
        STATISTICS,
    ),
    Fault(
        "a verdict's n counts runs without a value",
        "analysis/cell_verdicts.py",
        'Sample(row["mean"], row["std"], int(row["seeds"])),\n',
        'Sample(row["mean"], row["std"], int(row["best_runs"])),\n',
        VERDICTS,
    ),
    Fault(
        "at the paper's point runs without a value are counted",
        "analysis/cells.py",
        '"at_paper_seeds": at["seeds"]',
        '"at_paper_seeds": at["runs"]',
        VERDICTS,
    ),
    Fault(
        "a baseline's n is the other method's",
        "analysis/evidence.py",
        'int(row["seeds_baseline"])',
        'int(row["seeds"])',
        "tests/analysis/test_relations.py " + STATISTICS,
    ),
    Fault(
        "a verdict needs enough seeds on one side only",
        "analysis/verdicts.py",
        "min(comparison.ours.seeds, comparison.theirs.seeds)",
        "max(comparison.ours.seeds, comparison.theirs.seeds)",
        VERDICTS,
    ),
    Fault(
        "grids are taken to be independent of each other",
        "analysis/verdicts.py",
        "sum(one.std for one in samples) / count",
        "sum(one.std**2 for one in samples) ** 0.5 / count",
        STATISTICS,
    ),
    Fault(
        "a mean over grids rests on the most seeds",
        "analysis/verdicts.py",
        "min(one.seeds for one in samples)",
        "max(one.seeds for one in samples)",
        STATISTICS,
    ),
    Fault(
        "an interval has one degree of freedom too many",
        "analysis/verdicts.py",
        "known.seeds - 1))",
        "known.seeds))",
        VERDICTS,
    ),
    Fault(
        "the share of clipped examples is the first step's",
        "methods/fixed_quantile.py",
        'state.memory["unclipped"] = unclipped',
        'state.memory.setdefault("unclipped", unclipped)',
        REPORTED,
    ),
    Fault(
        "the share of clipped examples is a running mean",
        "methods/fixed_quantile.py",
        'state.memory["unclipped"] = unclipped',
        'state.memory["unclipped"] = (unclipped + state.memory.get("unclipped", unclipped)) / 2',
        REPORTED,
    ),
    Fault(
        "the share of clipped examples is the first layer's",
        "methods/fixed_quantile_per_layer.py",
        "unclipped.mean(dim=1)",
        "unclipped[:, 0]",
        "tests/methods/test_variants.py",
    ),
    Fault(
        "the share of clipped examples is the first run's",
        "training/loop.py",
        "clipped[run].item()",
        "clipped[0].item()",
        REPORTED,
    ),
    Fault(
        "the threshold that is reported is the first run's",
        "training/loop.py",
        "_or_none(state.threshold[run].item())",
        "_or_none(state.threshold[0].item())",
        REPORTED,
    ),
)

SLIGHTLY = [*BOOKS, *REPORTS]
