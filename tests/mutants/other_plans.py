"""Faults that the first plan, and a training that is never interrupted, hide."""

from fault import ACCOUNTS, Fault, T, of_kind

ACCOUNT, PLANNED = "tests/analysis/test_accounts_exact.py", "tests/campaign/test_as_planned.py"
RESTART, SCORES = T + "test_restart.py", T + "test_evaluate.py"
CAMPAIGN = "tests/campaign/test_campaign.py tests/campaign/test_control.py " + PLANNED
_COHORT = "        cohort = work.cohort\n        arrays"
_GROUP = "                group,\n                arrays,"


def _trained_with(name: str, changes: str) -> Fault:
    """The campaign's line, with something about the cohort replaced.

    `first` is the first cohort of all, `same` the first of this one's name.
    """
    new = (
        "        import dataclasses\n"
        "        first = self.everything[0].cohort\n"
        "        same = next(\n"
        "            w.cohort for w in self.everything if w.cohort.name == work.cohort.name\n"
        "        )\n"
        f"        cohort = dataclasses.replace(work.cohort, {changes})\n"
        "        arrays"
    )
    return Fault(name, "campaign/campaign.py", _COHORT, new, PLANNED)


def _group(name: str, run: str) -> Fault:
    """The campaign's group, with something about each run replaced."""
    new = f"                [type(run)({run}) for run in group],\n                arrays,"
    return Fault(name, "campaign/campaign.py", _GROUP, new, PLANNED)


SECOND_PLAN = of_kind(
    "second plan",
    Fault(
        "the accounts know the first plan only",
        "analysis/accounts.py",
        "        for plan in plans\n",
        "        for plan in plans[:1]\n",
        ACCOUNT,
    ),
    _trained_with(
        "a campaign's noise is the first plan's", "noise_multiplier=first.noise_multiplier"
    ),
    _trained_with(
        "a campaign's settings are the first plan's", "evaluate_every=first.evaluate_every"
    ),
    _trained_with(
        "a campaign's constants are the first plan's", "method_settings=same.method_settings"
    ),
    _trained_with("a campaign's momentum is the first plan's", "momentum=same.momentum"),
    _trained_with("a campaign's batches are the first plan's", "batch_size=same.batch_size"),
    _trained_with("a campaign trains as long as the first plan says", "epochs=same.epochs"),
    _trained_with(
        "a campaign's last layer is the first plan's",
        "last_layer_nonlinearity=same.last_layer_nonlinearity",
    ),
    Fault(
        "a campaign leaves out cohorts whose name the first plan has",
        "campaign/order.py",
        "            works.append(Work(plan, replace(cohort, runs=runs), holders))\n",
        "            if cohort.name not in {work.cohort.name for work in works}:\n"
        "                works.append(Work(plan, replace(cohort, runs=runs), holders))\n",
        PLANNED,
    ),
    Fault(
        "a row is held against the first plan's cohort of its name",
        "analysis/accounts.py",
        "        run.run_id: (cohort, run)\n",
        "        run.run_id: (\n"
        "            next(c for p in plans for c in p.cohorts if c.name == cohort.name),\n"
        "            run,\n"
        "        )\n",
        f"{ACCOUNT} {ACCOUNTS}",
    ),
    Fault(
        "of plans that are named the first is read",
        "study/plan.py",
        "return [*named] if named",
        "return [*named[:1]] if named",
        "tests/cli/test_account.py",
    ),
    Fault(
        "of files with budgets the first is read",
        "analysis/budgets.py",
        "for path in paths for row",
        "for path in paths[:1] for row",
        ACCOUNT,
    ),
    Fault(
        "a second budget of one search is met by the first one's noise",
        "study/calibrated.py",
        "            nu = noise_multiplier(search, cohort.epsilon, cohort.delta)\n",
        "            same = [grid.noise_multiplier for grid in grids if grid.search == search]\n"
        "            nu = (same or [noise_multiplier(search, cohort.epsilon, cohort.delta)])[0]\n",
        "tests/study/test_plan.py tests/study/test_calibrated.py",
    ),
)

OTHERWISE = of_kind(
    "campaign",
    _trained_with("a campaign is always seeded", 'randomness="seeded"'),
    _trained_with(
        "a campaign is seeded after its first group",
        'randomness="seeded" if self.groups else work.cohort.randomness',
    ),
    _trained_with(
        "a campaign's noise has three decimals",
        "noise_multiplier=round(work.cohort.noise_multiplier, 3)",
    ),
    _trained_with("a campaign's loss is a mean over pixels", 'loss="mean"'),
    _trained_with("a campaign evaluates every fifty steps", "evaluate_every=50"),
    _trained_with("a campaign's products are in float32", 'precision="float32"'),
    _group("a campaign's runs begin as seed 0 does", "run.run_id, 0, *run.point"),
    _group(
        "a group's runs begin at its first one's point", "run.run_id, run.seed, *group[0].point"
    ),
    Fault(
        "a campaign leaves out what diverged",
        "campaign/parts.py",
        '"runs", rows.runs)',
        '"runs", [row for row in rows.runs if row.get("status") != "diverged"])',
        PLANNED,
    ),
    Fault(
        "a campaign leaves out what diverged runs had reached",
        "campaign/parts.py",
        '"evaluations", rows.evaluations)',
        '"evaluations", [each for each in rows.evaluations if "diverged" not in [\n'
        '            row.get("status") for row in rows.runs if row["run_id"] == each["run_id"]\n'
        "        ]])",
        PLANNED,
    ),
    Fault(
        "a campaign trains diverged runs again",
        "campaign/parts.py",
        'self.done |= set(rows["run_id"])',
        'self.done |= set(rows.loc[rows["status"] != "diverged", "run_id"])',
        PLANNED,
    ),
    Fault(
        "rows say that every run finished",
        "training/job.py",
        '"status": outcome.status,',
        '"status": "finished",',
        RESTART,
    ),
)

_NAMES = "        for name in _ARRAY_NAMES:\n            digest"
_FINGERPRINT = "_fingerprint(code, arrays.digest, str(cohort.noise_multiplier), kind, *ids)"


def _goes_on_with(what: str, parts: str) -> Fault:
    """A job's fingerprint of these parts only."""
    new = f"_fingerprint({parts})"
    tests = f"{RESTART} {T}test_job.py"
    return Fault(f"a run goes on with {what}", "training/job.py", _FINGERPRINT, new, tests)


def _of_arrays(name: str, old: str, new: str) -> Fault:
    return Fault(name, "data/arrays.py", old, new, RESTART)


RESTARTS = of_kind(
    "restart",
    _of_arrays(
        "a run goes on with other labels",
        _NAMES,
        "        for name in ('train_inputs', 'test_inputs', 'test_targets'):\n            digest",
    ),
    _of_arrays(
        "a run goes on with another test set",
        _NAMES,
        "        for name in ('train_inputs', 'train_targets'):\n            digest",
    ),
    _of_arrays(
        "a run goes on with other examples than the first hundred",
        "np.ascontiguousarray(getattr(self, name))",
        "np.ascontiguousarray(getattr(self, name)[:100])",
    ),
    _of_arrays(
        "a run goes on with the same examples in another order",
        "np.ascontiguousarray(getattr(self, name))",
        "np.sort(getattr(self, name), axis=None)",
    ),
    _goes_on_with(
        "nearly the same noise",
        "code, arrays.digest, str(round(cohort.noise_multiplier, 3)), kind, *ids",
    ),
    _goes_on_with(
        "another group of runs",
        "code, arrays.digest, str(cohort.noise_multiplier), kind, str(len(ids))",
    ),
    _goes_on_with(
        "another device's noise", "code, arrays.digest, str(cohort.noise_multiplier), *ids"
    ),
    _goes_on_with(
        "what other code has done", "arrays.digest, str(cohort.noise_multiplier), kind, *ids"
    ),
    Fault(
        "a run goes on with another gradient code",
        "training/provenance.py",
        '"gradients", ',
        "",
        T + "test_provenance.py",
    ),
    Fault(
        "a run goes on with code that has the same length",
        "training/provenance.py",
        ' + b"\\0" + path.read_bytes())',
        ' + b"\\0" + str(path.stat().st_size).encode())',
        T + "test_provenance.py",
    ),
    Fault(
        "of a checkpoint's fingerprint one digit counts",
        "training/checkpoint.py",
        'content["fingerprint"] == fingerprint',
        'content["fingerprint"][:1] == fingerprint[:1]',
        f"{RESTART} {T}test_job.py",
    ),
    Fault(
        "a restart forgets the momentum",
        "training/loop.py",
        'State(**content["state"])',
        'State(**{**content["state"], "memory": {}})',
        T + "test_loop.py",
    ),
    Fault(
        "a restart forgets the scores before it",
        "training/loop.py",
        'Outcome(**outcome) for outcome in content["outcomes"]',
        'Outcome(outcome["run_id"]) for outcome in content["outcomes"]',
        T + "test_loop.py",
    ),
    Fault(
        "the last, shorter part of the test set is left out",
        "training/evaluate.py",
        "range(0, len(self.inputs), self.batch)",
        "range(0, max(1, len(self.inputs) // self.batch * self.batch), self.batch)",
        SCORES,
    ),
    Fault(
        "the last part of the test set is filled up with its neighbours",
        "training/evaluate.py",
        "part = slice(start, start + self.batch)",
        "part = slice(max(0, min(start, len(self.inputs) - self.batch)), start + self.batch)",
        SCORES,
    ),
    Fault(
        "the even half begins anew in each part of the test set",
        "training/evaluate.py",
        "in SPLITS.items()",
        'in (SPLITS | {"test_even": torch.arange(len(value)) % self.batch % 2 == 0}).items()',
        SCORES,
    ),
)

OTHER_PLANS = [*SECOND_PLAN, *OTHERWISE, *RESTARTS]
