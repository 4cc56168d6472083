"""Of configurations, cohorts, plans and jobs: the second data set, settings of one's own, the end.

Where several data sets, epsilons or seeds stand in one study, and where a setting is not the usual.
"""

from fault import Fault, T

_SETS, _RUNS = "tests/study/test_several_data_sets.py", "tests/study/test_every_run.py"
_GRID, _CONFIG = "tests/study/test_grid.py", "tests/study/test_config.py"
_ROWS, _ENDS, _COMMIT = T + "test_rows.py", T + "test_course_ends.py", T + "test_commit.py"
_CALIBRATED, _ODD = "tests/study/test_calibrated.py", "tests/study/test_odd_sizes.py"
_FIRST = "next(iter(config.datasets.values()))"

OVERLOOKED_STUDY_FURTHER = [
    *(
        Fault(
            f"{what} of the first data set holds for all of them",
            "study/expand.py",
            f"{name}=section.{name},",
            f"{name}={_FIRST}.{name},",
            _SETS,
        )
        for what, name in (
            ("the precision", "precision"),
            ("the loss over pixels", "loss"),
            ("what becomes of unknown words", "unknown_words"),
        )
    ),
    Fault(
        "a batch need not fit the smaller of two data sets",
        "study/config.py",
        "if self.batch_size > info.examples:",
        "if self.batch_size > max(self._info(one).examples for one in self.datasets):",
        _SETS,
    ),
    Fault(
        "data behind a public data set are taken for public",
        "study/config.py",
        "                    info,\n                    section.epsilons,",
        "                    self._info(next(iter(self.datasets))),\n"
        "                    section.epsilons,",
        _SETS,
    ),
    Fault(
        "of two protected data sets the one of fewer runs decides whether a budget is kept",
        "study/own_data.py",
        "if totals[cohort.dataset] > cohort.budget_runs:",
        "if min(totals.values()) > cohort.budget_runs:",
        _SETS,
    ),
    Fault(
        "a budget that another data set has in the paper is left out without a word",
        "study/expand.py",
        "for cohort in every if cohort.dataset == name}",
        "for cohort in every}",
        _SETS,
    ),
    Fault(
        "two runs of one identity are looked for in the first cohort alone",
        "study/expand.py",
        "    for cohort in every:\n        if len({run",
        "    for cohort in every[:1]:\n        if len({run",
        _RUNS,
    ),
    Fault(
        "a study without momentum trains with the usual one",
        "study/cohort.py",
        "self.momentum or 0.0",
        "self.momentum or 0.9",
        f"{_RUNS} {_ROWS}",
    ),
    Fault(
        "a count's noise is split for the usual batch size",
        "study/cohort.py",
        "split_noise(self.noise_multiplier, self.batch_size)",
        "split_noise(self.noise_multiplier, 512)",
        _RUNS,
    ),
    Fault(
        "runs of a plan that is read are in another order of seeds",
        "study/cohort.py",
        "list(dict.fromkeys(run.seed for run in self.runs))",
        "sorted({run.seed for run in self.runs})",
        _RUNS,
    ),
    Fault(
        "a part of a scaled search's runs is priced as the whole",
        "study/scaled.py",
        "cohort.grid_runs, cohort.trial_shares)",
        "max(1, len(cohort.points)), cohort.trial_shares)",
        _RUNS,
    ),
    Fault(
        "before training, a search is priced without its last step",
        "study/affordable.py",
        "Search(sampling, cohort.steps,",
        "Search(sampling, cohort.epochs * cohort.examples // cohort.batch_size,",
        _ODD,
    ),
    Fault(
        "a scaled search is priced without its last step",
        "study/scaled.py",
        "ScaledSearch(sampling, cohort.steps,",
        "ScaledSearch(sampling, cohort.epochs * cohort.examples // cohort.batch_size,",
        _ODD,
    ),
    Fault(
        "a study has five quantiles at most",
        "study/grid.py",
        '"quantile": list(grid.quantiles)',
        '"quantile": list(grid.quantiles)[:5]',
        _GRID,
    ),
    Fault(
        "thresholds are of the paper's range, whatever a study says",
        "study/grid.py",
        "log_uniform(*grid.log10_threshold, k)",
        "log_uniform(-2.0, 2.0, k)",
        _GRID,
    ),
    Fault(
        "a seed may stand in a study twice",
        "study/config.py",
        'for name in ("granularities", "seeds"):\n            _no',
        'for name in ("granularities",):\n            _no',
        _CONFIG,
    ),
    Fault(
        "a granularity may stand in a study twice",
        "study/config.py",
        'for name in ("granularities", "seeds"):\n            _no',
        'for name in ("seeds",):\n            _no',
        _CONFIG,
    ),
    Fault(
        "budgets that differ in their last digits share their noise",
        "study/identity.py",
        "eps{epsilon:.15g}",
        "eps{epsilon:.12g}",
        "tests/study/test_cohort.py",
    ),
    Fault(
        "own data: of two runs of one identity one is left out without a word",
        "study/expand.py",
        "    for cohort in every:\n        if len({run",
        "    for cohort in with_one_budget(every, map(config.info, config.datasets)):\n"
        "        if len({run",
        "tests/study/test_own_data.py",
    ),
    Fault(
        "the locks of a study whose name begins alike are removed",
        "study/workflow.py",
        'if f"{build}/" in lock.read_text()]',
        'if f"{build}" in lock.read_text()]',
        "tests/study/test_workflow.py",
    ),
    Fault(
        "a study of guesses is priced as single runs by whatever selection",
        "study/calibrated.py",
        "if {LINEAR_SCALING, SINGLE} & {way, config.tuning_accounting}:",
        "if LINEAR_SCALING in (way, config.tuning_accounting):",
        _CALIBRATED,
    ),
    Fault(
        "whoever asks for a distribution of guesses is not told that there is none",
        "cli/calibrate.py",
        "if shape is not None and way != RANDOM_STOPPING:",
        "if shape is not None and way == LINEAR_SCALING:",
        "tests/cli/test_calibrate.py",
    ),
    Fault(
        "no whole search costs more than twice its final run",
        "accounting/scaled_search.py",
        "_FARTHEST = 64.0",
        "_FARTHEST = 2.0",
        "tests/accounting/test_scaled_search.py",
    ),
    Fault(
        "every job trains in the usual precision",
        "training/job.py",
        "        precision=cohort.precision,\n",
        "",
        _ROWS,
    ),
    Fault(
        "rows of a study without momentum say nothing of it",
        "training/job.py",
        '"momentum": cohort.momentum,',
        '"momentum": cohort.momentum or None,',
        _ROWS,
    ),
    Fault(
        "rows have the usual delta",
        "training/job.py",
        '"delta": cohort.delta,',
        '"delta": cohort.delta and 1e-5,',
        _ROWS,
    ),
    Fault(
        "a run may have diverged at a step that was not taken yet",
        "training/outcome.py",
        "1 <= ended <= step <= self.steps",
        "1 <= ended and step <= self.steps",
        _ENDS,
    ),
    Fault(
        "a run may finish before its last step",
        "training/outcome.py",
        'outcome.status == "finished" and step == self.steps',
        'outcome.status == "finished"',
        _ENDS,
    ),
    Fault(
        "a last step that is no multiple need not be evaluated",
        "training/outcome.py",
        "step % self.evaluate_every == 0 or step == self.steps",
        "step % self.evaluate_every == 0",
        _ENDS,
    ),
    Fault(
        "code that was changed passes for the commit's",
        "training/provenance.py",
        "{'-dirty' if changed else ''}",
        "",
        _COMMIT,
    ),
    Fault(
        "code that was added passes for the commit's",
        "training/provenance.py",
        '"status", "--porcelain",',
        '"status", "--porcelain", "-uno",',
        _COMMIT,
    ),
    Fault(
        "the commit is that of a repository around an installation",
        "training/provenance.py",
        'if _git(source, "ls-files", "--", "__init__.py"):',
        'if _git(source, "rev-parse", "HEAD"):',
        _COMMIT,
    ),
]
