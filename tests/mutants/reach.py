"""Faults that the smallest case hides: several runs, late steps, the second plan, restarts."""

from fault import A, Fault, G, P, T, in_mechanism, in_queries

MANY, LONG, EXACT = P + "test_many_runs.py", P + "test_long_runs.py", A + "test_books_exact.py"
ACCOUNT, PLANNED = "tests/analysis/test_accounts_exact.py", "tests/campaign/test_as_planned.py"
RESTART, SCORES, REPORTED = (T + f"test_{name}.py" for name in ("restart", "evaluate", "reported"))
STATISTICS = "tests/analysis/test_statistics.py"
_COHORT = "        cohort = work.cohort\n        arrays"


def _trained_with(changes: str) -> str:
    """The campaign's line, with something about the cohort replaced."""
    return (
        "        import dataclasses\n"
        "        first = self.everything[0].cohort\n"
        f"        cohort = dataclasses.replace(work.cohort, {changes})\n"
        "        arrays"
    )


SEVERAL = [
    in_queries(
        "thresholds of several runs are not clamped",
        "self.threshold[runs, None].clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        "self.threshold[runs, None]",
        MANY,
    ),
    in_queries(
        "sensitivities of several runs are not clamped",
        "return self._threshold(runs)[:, 0]",
        "return self.threshold[runs]",
        MANY,
    ),
    in_queries(
        "of several runs an example that is not finite is counted",
        "return votes.masked_fill(~norms.isfinite(), 0.0)",
        "return votes if norms.dim() > 1 else votes.masked_fill(~norms.isfinite(), 0.0)",
        MANY,
    ),
    Fault(
        "examples that are not finite stay, but for the first run's",
        "gradients/batch.py",
        "        if waits(bad) or bad.any():",
        "        if bad[: shape[1]].any():",
        G + "test_several_runs.py",
    ),
]

LATE = [
    in_mechanism(
        "no noise after step 1,024",
        "        if query.noise_multiplier == 0:\n",
        "        if query.noise_multiplier == 0 or step > 1024:\n",
        LONG,
    ),
    in_mechanism(
        "the price of a step is looked at fifty times",
        "        self._check_budget(queries)\n        for run",
        "        if step <= 50:\n            self._check_budget(queries)\n        for run",
        LONG,
    ),
    Fault(
        "a ledger stops counting at 1,024",
        "privacy/ledger.py",
        "self.steps[-1] = (queries, self.steps[-1][1] + 1)",
        "self.steps[-1] = (queries, min(1024, self.steps[-1][1] + 1))",
        LONG,
    ),
]

BOOKS = [
    Fault(
        "steps of nearly the same noise are merged",
        "privacy/ledger.py",
        "if self.steps and self.steps[-1][0] == queries:",
        "if self.steps and [round(q.noise_multiplier, 2) for q in self.steps[-1][0]] == [\n"
        "            round(q.noise_multiplier, 2) for q in queries\n"
        "        ]:",
        EXACT,
    ),
    Fault(
        "of a kind of step that comes again, the last count is priced",
        "privacy/ledger.py",
        "counted[self.sampling, nu] += count",
        "counted[self.sampling, nu] = count",
        EXACT,
    ),
    Fault(
        "shapes below one are priced as logarithmic",
        "accounting/search.py",
        "RepeatAndSelectDpEvent(one, mean_runs, shape)",
        "RepeatAndSelectDpEvent(one, mean_runs, shape if shape >= 1 else 0.0)",
        EXACT,
    ),
    Fault(
        "a ledger's rate may be one percent off",
        "results/claims.py",
        "rel_tol=1e-9",
        "rel_tol=1e-2",
        ACCOUNT,
    ),
    Fault(
        "a budget may be exceeded by one percent",
        "analysis/accounts.py",
        "_SLACK = 1 + 1e-9",
        "_SLACK = 1.01",
        ACCOUNT,
    ),
    Fault(
        "two ledgers of one run pass",
        "results/collect.py",
        "_WHERE_IT_RAN = [\n",
        '_WHERE_IT_RAN = [\n    "ledger",\n',
        ACCOUNT,
    ),
]

PLANS = [
    Fault(
        "the accounts know the first plan only",
        "analysis/accounts.py",
        "        for plan in plans\n",
        "        for plan in plans[:1]\n",
        ACCOUNT,
    ),
    Fault(
        "a campaign's noise is the first plan's",
        "campaign/campaign.py",
        _COHORT,
        _trained_with("noise_multiplier=first.noise_multiplier"),
        PLANNED,
    ),
    Fault(
        "a campaign's settings are the first plan's",
        "campaign/campaign.py",
        _COHORT,
        _trained_with("evaluate_every=first.evaluate_every"),
        PLANNED,
    ),
    Fault(
        "a campaign is always seeded",
        "campaign/campaign.py",
        _COHORT,
        _trained_with('randomness="seeded"'),
        PLANNED,
    ),
    Fault(
        "a campaign leaves out what diverged",
        "campaign/parts.py",
        '"runs", rows.runs)',
        '"runs", [row for row in rows.runs if row.get("status") != "diverged"])',
        PLANNED,
    ),
]

RESTARTS = [
    Fault(
        "a run goes on with other labels",
        "data/arrays.py",
        "        for name in _ARRAY_NAMES:\n            digest",
        "        for name in ('train_inputs', 'test_inputs', 'test_targets'):\n            digest",
        RESTART,
    ),
    Fault(
        "a run goes on with another test set",
        "data/arrays.py",
        "        for name in _ARRAY_NAMES:\n            digest",
        "        for name in ('train_inputs', 'train_targets'):\n            digest",
        RESTART,
    ),
    Fault(
        "rows say that every run finished",
        "training/job.py",
        '"status": outcome.status,',
        '"status": "finished",',
        RESTART,
    ),
    Fault(
        "the last, shorter part of the test set is left out",
        "training/evaluate.py",
        "range(0, len(self.inputs), self.batch)",
        "range(0, max(1, len(self.inputs) // self.batch * self.batch), self.batch)",
        SCORES,
    ),
]

COUNTS = [
    Fault(
        "seeds without a value are counted",
        "analysis/points.py",
        'groups["value"].agg(["mean", "std", "count"])',
        'groups["value"].agg(["mean", "std", "size"])',
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
        "the share of clipped examples is the first step's",
        "methods/fixed_quantile.py",
        'state.memory["unclipped"] = unclipped',
        'state.memory.setdefault("unclipped", unclipped)',
        REPORTED,
    ),
    Fault(
        "the share of clipped examples is the first run's",
        "training/loop.py",
        "clipped[run].item()",
        "clipped[0].item()",
        REPORTED,
    ),
]

REACH = [*SEVERAL, *LATE, *BOOKS, *PLANS, *RESTARTS, *COUNTS]
