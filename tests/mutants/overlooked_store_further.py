"""Faults in what is stored that no test had reached: which rows are looked at, kept and read."""

from fault import Fault, of_kind

_ROWS = "tests/results/test_every_row.py"
_SEARCH = "tests/bad_input/test_other_search.py"
_ALIKE = ".drop_duplicates(alike)"


def _in_claims(name: str, old: str, new: str, tests: str = _ROWS) -> Fault:
    return Fault(name, "results/row_claims.py", old, new, tests)


_CLAIMED = [
    _in_claims(
        "a row without privacy hides behind one that has it",
        _ALIKE,
        '.drop_duplicates(["dataset", "selection", "settings"])',
    ),
    _in_claims(
        "a row of another selection hides behind one that says the same of its settings",
        _ALIKE,
        '.drop_duplicates(["dataset", "method", "settings"])',
    ),
    _in_claims(
        "own data: a row with other settings hides behind one that is right",
        _ALIKE,
        '.drop_duplicates(["dataset", "method", "selection"])',
    ),
    _in_claims(
        "a row needs no learning rate",
        '"seed", "learning_rate", "selection")',
        '"seed", "selection")',
    ),
    _in_claims(
        "a run may diverge after its last step",
        'not 1 <= ended <= row["steps"]',
        "not 1 <= ended",
    ),
    _in_claims(
        "a row may be of other batches and lengths than was planned",
        '("examples", "batch_size", "epochs", "steps")}',
        "()}",
        "tests/analysis/test_accounts_planned.py",
    ),
    _in_claims(
        "a ledger may have more steps than its run",
        "if ledger.step_count != steps:",
        "if ledger.step_count < steps:",
    ),
    _in_claims(
        "a learning rate may fall in a way that there is not",
        'said.get("schedule", "linear") != "linear" or ',
        "",
    ),
    Fault(
        "own data: rows that say nothing of their randomness pass",
        "results/protected.py",
        'said.get("randomness") != "system"',
        'said.get("randomness") == "seeded"',
        _ROWS,
    ),
    Fault(
        "own data: guesses and searches in parts pass",
        "results/protected.py",
        'row["selection"] != COMPOSITION',
        'row["selection"] == "random_stopping"',
        _ROWS,
    ),
    Fault(
        "own data: of two data sets of the same settings one shares a budget",
        "results/protected.py",
        'drop_duplicates(["dataset", "settings"])',
        'drop_duplicates("settings")',
        "tests/results/test_protected.py",
    ),
]

_BEFORE = [
    Fault(
        "own data: of a study's data sets the first one may be spent on nothing else",
        "results/spent.py",
        "in planned.items():",
        "in [*planned.items()][:1]:",
        "tests/results/test_spent.py",
    ),
    Fault(
        "of a study's cohorts the first one is held against the stored searches",
        "results/other_search.py",
        "for cohort in cohorts:",
        "for cohort in [*cohorts][:1]:",
        _SEARCH,
    ),
    Fault(
        "searches behind a guess are not held against the stored ones",
        "results/other_search.py",
        "            continue\n",
        "            return\n",
        _SEARCH,
    ),
    Fault(
        "own data: a job trains beside another study of them",
        "cli/train.py",
        "[one for one in planned.cohorts if one.dataset == chosen.dataset]",
        "[]",
        "tests/cli/test_own_data.py",
    ),
    Fault(
        "a part with another shard's runs is written over",
        "cli/train.py",
        "stored.union(run.run_id for run in shards[shard])",
        "stored.union(run.run_id for run in chosen.runs)",
        "tests/cli/test_shards.py",
    ),
    Fault(
        "a store whose change is on its way is written over",
        "results/write.py",
        " or (part / PENDING).exists()",
        "",
        "tests/cli/test_shards.py",
    ),
    Fault(
        "a campaign trains with less noise than the budget asks for",
        "campaign/campaign.py",
        "        check_affordable([work.cohort])\n",
        "",
        "tests/campaign/test_spoiled.py",
    ),
]

_KEPT = of_kind(
    "reported",
    Fault(
        "of two courses with the same scores one is kept",
        "results/collect.py",
        "evaluations.drop_duplicates(ignore_index=True)",
        'evaluations.drop_duplicates([*KEYS["evaluations"], "value"], ignore_index=True)',
        "tests/results/test_results.py",
    ),
    Fault(
        "a run that comes again says of the stored one where it ran",
        "results/collect.py",
        'keep="first", ignore_index',
        'keep="last", ignore_index',
        "tests/results/test_results.py",
    ),
    Fault(
        "a run's last row is its last step",
        "results/evaluated.py",
        "groupby(numbers.run).max()",
        "groupby(numbers.run).last()",
        "tests/results/test_evaluated.py",
    ),
    Fault(
        "of the data sets to verify the first one is taken",
        "verification/again.py",
        "one.cohort.dataset in datasets]",
        "one.cohort.dataset == datasets[0]]",
        "tests/verification/test_again.py",
    ),
    Fault(
        "rows of the second data set are verified on the first one",
        "cli/verify.py",
        "if cohort.data_file not in held:",
        "if not held:",
        "tests/cli/test_verify.py",
    ),
)

OVERLOOKED_STORE_FURTHER = [*_CLAIMED, *_BEFORE, *_KEPT]
