"""Faults in a study of data that are not public, whose runs share one epsilon."""

from fault import Fault

STUDY, CLI = "tests/study/test_own_data.py", "tests/cli/test_own_data.py"
TOTALS, OFFERED = "tests/analysis/test_total_accounts.py", "tests/data/test_installed.py"


def in_budget(name: str, old: str, new: str, tests: str = STUDY) -> Fault:
    return Fault(f"own data: {name}", "study/own_data.py", old, new, tests)


def in_totals(name: str, old: str, new: str) -> Fault:
    return Fault(f"own data: {name}", "analysis/total_accounts.py", old, new, TOTALS)


def in_cohort(name: str, old: str, new: str) -> Fault:
    return Fault(f"own data: {name}", "study/cohort.py", old, new, STUDY)


def in_config(name: str, old: str, new: str) -> Fault:
    return Fault(f"own data: {name}", "study/config.py", old, new, STUDY)


OWN_DATA = [
    in_budget(
        "seeds are free",
        "update(run.run_id for run in cohort.runs)",
        "update(f'{cohort.name} {point}' for point in cohort.points)",
    ),
    in_budget(
        "one method's grid is left out of the composition",
        "runs_by_dataset(cohort for cohort in cohorts if cohort.dataset in private)",
        "runs_by_dataset(cohort for cohort in cohorts[1:] if cohort.dataset in private)",
    ),
    in_budget(
        "whether data are public is not looked at when runs are counted",
        "{info.name for info in infos if not info.public}",
        "{info.name for info in infos if info.public}",
    ),
    in_budget(
        "NoDP trains on data that are not public",
        "if name in method_names() and not find_method(name).private:",
        "if name not in method_names():",
    ),
    in_budget(
        "their noise may have a seed",
        'if randomness != "system":',
        'if randomness not in ("system", "seeded"):',
    ),
    in_budget(
        "a second epsilon is another budget", "if len(epsilons) != 1:", "if not len(epsilons):"
    ),
    in_budget(
        "searches may stop at random",
        "    if tuning_accounting != COMPOSITION:\n",
        "    if not tuning_accounting:\n",
    ),
    in_budget(
        "a plan may hold more runs than are paid for",
        "if totals[cohort.dataset] > cohort.budget_runs:",
        "if len(cohort.runs) > cohort.budget_runs:",
    ),
    in_budget(
        "a plan may hold runs without noise, or with a seed",
        'if not cohort.private or cohort.randomness != "system":',
        'if not cohort.private and cohort.randomness != "system":',
    ),
    in_cohort(
        "noise is calibrated to each grid instead of the total",
        "return self.grid_runs if self.budget_runs is None else self.budget_runs",
        "return self.grid_runs",
    ),
    in_cohort(
        "whether they are public is not part of a run's identity, nor how many share a budget",
        "**({} if self.data_version is None else own),",
        "",
    ),
    Fault(
        "own data: everybody may read what was prepared",
        "data/__init__.py",
        "only_owner=not info.public",
        "only_owner=False",
        "tests/cli/test_own_data.py",
    ),
    Fault(
        "own data: their version is not part of a run's identity",
        "study/identity.py",
        'if name != "words"}',
        'if name not in ("words", "data_version")}',
        STUDY,
    ),
    Fault(
        "own data: the check before training goes by one grid",
        "study/affordable.py",
        "cohort.steps, cohort.paid_runs, cohort.selection",
        "cohort.steps, cohort.grid_runs, cohort.selection",
        STUDY,
    ),
    in_config(
        "what cannot be asked of them is not looked at",
        "                check_protected(\n",
        "                max(\n",
    ),
    Fault(
        "own data: n is not checked when they are prepared",
        "data/prepared.py",
        '        "examples": (len(arrays.train_targets), info.examples),\n',
        "",
        OFFERED,
    ),
    Fault(
        "own data: labels are not checked",
        "data/prepared.py",
        "if least < 0 or most >= info.classes:",
        "if least < 0 and most >= info.classes:",
        OFFERED,
    ),
    Fault(
        "own data: public unless told otherwise",
        "data/installed.py",
        "public: bool = False",
        "public: bool = True",
        OFFERED,
    ),
    Fault(
        "own data: what is installed need not be what was planned for",
        "training/own_problem.py",
        "if (info.version, info.examples, info.public) != planned:",
        "if (info.version, info.examples) != planned[:2]:",
        CLI,
    ),
    Fault(
        "own data: weights that are not trained differ from run to run",
        "training/own_problem.py",
        "if not torch.equal(values, fixed[1][name]):",
        "if values.shape != fixed[1][name].shape:",
        CLI,
    ),
    in_totals(
        "runs that are not stored are not charged",
        'size = max(int(study["budget_runs"].iloc[0]), len(ledgers))',
        "size = len(ledgers)",
    ),
    in_totals(
        "of two studies only the larger is charged",
        "        charged += _charged(study)\n",
        "        charged = max(charged, _charged(study), key=len)\n",
    ),
    in_totals(
        "the largest epsilon counts",
        'epsilon=float(rows["epsilon"].min()),',
        'epsilon=float(rows["epsilon"].max()),',
    ),
    in_totals(
        "rows that say nothing of themselves are free",
        "    return own | unknown\n",
        "    return own\n",
    ),
    Fault(
        "own data: a row may say that it is public and shares a budget",
        "results/protected.py",
        'alike = said.get("public") is (number is None) and',
        "alike =",
        TOTALS,
    ),
    Fault(
        "own data: rows without privacy are accepted",
        "results/protected.py",
        'and not find_method(row["method"]).private:',
        'and row["method"] == "adam":',
        TOTALS,
    ),
    Fault(
        "own data: a store takes a second study of them",
        "results/spent.py",
        "        if others:\n",
        "        if others and len(others) == len(rows) < 0:\n",
        TOTALS,
    ),
    Fault(
        "own data: a collection looks at the cohorts alone that it changes",
        "results/collect.py",
        'check(merged.runs[touched | merged.runs["dataset"].isin(of_one_budget)])',
        "check(merged.runs[touched])",
        TOTALS,
    ),
    Fault(
        "own data: times of runs are stored",
        "training/job.py",
        '"wall_seconds": outcome.wall_seconds if cohort.public else None,',
        '"wall_seconds": outcome.wall_seconds,',
        CLI,
    ),
]
