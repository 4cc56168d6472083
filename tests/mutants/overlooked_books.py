"""Faults of accounts and stored rows that the tests of their room once did not see."""

from fault import A, Fault, of_kind

_TOTALS = "tests/analysis/test_total_accounts.py"
_AFFORDABLE, _NOISE = "tests/study/test_affordable.py", "tests/analysis/test_noise.py"

OVERLOOKED_BOOKS = [
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
            "steps of a diverged run that were not made have the most noise of those that were",
            "analysis/charges.py",
            "least = min(nu for nu, _ in ledger.releases())",
            "least = max(nu for nu, _ in ledger.releases())",
            "tests/analysis/test_accounts.py",
        ),
        Fault(
            "own data: studies of two budgets are charged as one",
            "analysis/total_accounts.py",
            '"epsilon", "delta", "examples", "batch_size", "epochs"),',
            '"delta", "examples", "batch_size", "epochs"),',
            "tests/analysis/test_total_accounts.py",
        ),
        Fault(
            "own data: studies of other numbers of examples are charged as one",
            "analysis/total_accounts.py",
            '"delta", "examples", "batch_size"',
            '"delta", "batch_size"',
            "tests/analysis/test_total_accounts.py",
        ),
        Fault(
            "one row that says its search speaks for all of its grid",
            "analysis/accounts.py",
            "rows[_CHOICES].notna().all()",
            "rows[_CHOICES].notna().any()",
            "tests/analysis/test_accounts.py",
        ),
        Fault(
            "a row may start elsewhere than was planned",
            "results/row_claims.py",
            '("seed", "learning_rate", "threshold", "quantile")}',
            '("seed", "learning_rate")}',
            "tests/analysis/test_accounts_planned.py",
        ),
        Fault(
            "steps of several sampling rates are priced at the first one's",
            "accounting/accountants.py",
            "spent = sum(n * _step_rdp(sampling, nu) for (sampling, nu), n in releases.items())",
            "first = next(iter(releases))[0]\n"
            "    spent = sum(n * _step_rdp(first, nu) for (_, nu), n in "
            "releases.items())",
            "tests/accounting/test_accountants.py",
        ),
        Fault(
            "by PRV, steps of several sampling rates are priced at the first one's",
            "accounting/accountants.py",
            "made.history = [(nu, sampling.rate, n) for (sampling, nu), n in releases.items()]",
            "rate = next(iter(releases))[0].rate\n"
            "        made.history = [(nu, rate, n) for (_, nu), n in releases.items()]",
            "tests/accounting/test_accountants.py",
        ),
        Fault(
            "a collection's check sees the files that change, not the cohorts",
            "results/collect.py",
            "touched = names.isin(set(names[files.isin(changed)]))",
            "touched = files.isin(changed)",
            "tests/results/test_store.py",
        ),
        Fault(
            "of files with budgets the last one counts",
            "analysis/budgets.py",
            "[*GRID], ignore_index=True",
            '[*GRID], keep="last", ignore_index=True',
            "tests/analysis/test_budgets.py",
        ),
        Fault(
            "own data: a plan promises for the runs of one k",
            "analysis/data_statement.py",
            "methods[cohort.method] += len(cohort.runs)",
            "methods[cohort.method] = len(cohort.runs)",
            "tests/study/test_own_data.py",
        ),
        Fault(
            "of longer searches ten million steps are priced",
            "accounting/search.py",
            "self.steps * self.runs})",
            "min(self.steps * self.runs, 10**7)})",
            A + "test_search.py",
        ),
        Fault(
            "noise passes for a search's that costs a hundredth less than the budget",
            "accounting/search.py",
            "budget * 0.999 <=",
            "budget * 0.99 <=",
            A + "test_search.py",
        ),
        Fault(
            "the number of trainings is drawn by 32 bits",
            "accounting/stopping.py",
            "(int(words(1)[0] >> np.uint64(11)) + 0.5) * 2.0**-53",
            "(int(words(1)[0] >> np.uint64(32)) + 0.5) * 2.0**-32",
            A + "test_stopping.py",
        ),
        Fault(
            "PRV is asked at a delta that is a twentieth larger",
            "accounting/accountants.py",
            "return float(made.get_epsilon(delta))",
            "return float(made.get_epsilon(1.05 * delta))",
            A + "test_accountants.py",
        ),
        Fault(
            "ledgers are priced at a delta of 1e-7 at least",
            "accounting/accountants.py",
            "compute_epsilon(orders, spent, delta)",
            "compute_epsilon(orders, spent, max(delta, 1e-7))",
            A + "test_books_exact.py",
        ),
        Fault(
            "searches are priced at a delta of 1e-7 at least",
            "accounting/accountants.py",
            "compose(event).get_epsilon(delta))",
            "compose(event).get_epsilon(max(delta, 1e-7)))",
            A + "test_books_exact.py",
        ),
        Fault(
            "noise is looked for at a delta of 1e-7 at least",
            "accounting/search.py",
            "noise_multiplier)).get_epsilon(delta))\n\n        return cost",
            "noise_multiplier)).get_epsilon(max(delta, 1e-7)))\n\n        return cost",
            A + "test_books_exact.py",
        ),
        Fault(
            "other accountants are asked about nine of a grid's runs",
            "analysis/charges.py",
            "return epsilon_of(self.ledgers, self.delta, accountant)",
            "return epsilon_of(self.ledgers[:9], self.delta, accountant)",
            "tests/analysis/test_accounts_exact.py",
        ),
        Fault(
            "a study's noise is that of the usual delta",
            "study/calibrated.py",
            "nu = noise_multiplier(search, cohort.epsilon, cohort.delta)",
            "nu = noise_multiplier(search, cohort.epsilon, 1e-5)",
            _AFFORDABLE,
        ),
        Fault(
            "a scaled search's noise is that of the usual delta",
            "study/calibrated.py",
            "search.noise_multipliers(cohort.epsilon, cohort.delta, accountant)",
            "search.noise_multipliers(cohort.epsilon, 1e-5, accountant)",
            _AFFORDABLE,
        ),
        Fault(
            "grids are accounted for at the usual delta",
            "analysis/accounts.py",
            '    delta = float(first["delta"])\n    ledgers',
            "    delta = 1e-5\n    ledgers",
            "tests/analysis/test_accounts_alone.py",
        ),
        Fault(
            "scaled searches are accounted for at the usual delta",
            "analysis/scaled_accounts.py",
            'epsilon, delta = float(first["epsilon"]), float(first["delta"])',
            'epsilon, delta = float(first["epsilon"]), 1e-5',
            "tests/analysis/test_scaled_accounts.py",
        ),
        Fault(
            "grids of one size and budget have one noise, whatever data set they are of",
            "study/calibrated.py",
            "nu = noise_multiplier(search, cohort.epsilon, cohort.delta)",
            "nu = next(\n"
            "                    (\n"
            "                        one.noise_multiplier\n"
            "                        for one in grids\n"
            "                        if one.search.runs == search.runs\n"
            "                        and one.cohort.epsilon == cohort.epsilon\n"
            "                    ),\n"
            "                    0.0,\n"
            "                ) or noise_multiplier(search, cohort.epsilon, cohort.delta)",
            "tests/study/test_calibrated.py",
        ),
        Fault(
            "a plan may cost a hundred-thousandth more than its budget",
            "study/affordable.py",
            "_SLACK = 1 + 1e-6",
            "_SLACK = 1 + 1e-5",
            _AFFORDABLE,
        ),
        Fault(
            "before training, every search that stops at random is taken for a geometric one",
            "study/affordable.py",
            "1.0 if cohort.stopping_shape is None else SHAPES[cohort.stopping_shape]",
            "1.0",
            _AFFORDABLE,
        ),
        Fault(
            "a search by Poisson's distribution has the noise of a geometric one",
            "study/calibrated.py",
            "Search(sampling, cohort.steps, cohort.paid_runs, way, shape)",
            "Search(sampling, cohort.steps, cohort.paid_runs, way, min(shape, 1.0))",
            _AFFORDABLE,
        ),
        Fault(
            "steps are rounded to the nearest number",
            "study/cohort.py",
            "math.ceil(self.epochs * self.examples / self.batch_size)",
            "round(self.epochs * self.examples / self.batch_size)",
            "tests/study/test_cohort.py",
        ),
        Fault(
            "own data: a run that diverged is charged by its steps",
            "analysis/total_accounts.py",
            "*(completed(ledger, filler) for ledger in ledgers)",
            "*ledgers",
            _TOTALS,
        ),
        Fault(
            "what is not stored has the first run's noise",
            "analysis/charges.py",
            "for ledger in ledgers for nu",
            "for ledger in ledgers[:1] for nu",
            "tests/analysis/test_accounts_exact.py",
        ),
        Fault(
            "of a cell's searches two are accounted for",
            "analysis/accounts.py",
            "known = group.loc[~unknown, _CHOICES].unique()",
            "known = group.loc[~unknown, _CHOICES].unique()[:2]",
            "tests/analysis/test_accounts_planned.py",
        ),
    ),
    *of_kind(
        "reported",
        Fault(
            "a deviation over the noise is a share where its mean is a percentage",
            "analysis/noise.py",
            '"std": row["std"] * factor',
            '"std": row["std"]',
            _NOISE,
        ),
        Fault(
            "a grid's noise is held against Online's of any k",
            "analysis/noise.py",
            'online.get((row.dataset, row.k, row.epsilon), float("nan"))',
            "next(v for (d, _, e), v in online.items() if (d, e) == (row.dataset, row.epsilon))",
            _NOISE,
        ),
        Fault(
            "rows say how the noise is split, whatever the budget says",
            "analysis/noise.py",
            "{**_ratios(study.runs), **_ratios(study.budget)}",
            "{**_ratios(study.budget), **_ratios(study.runs)}",
            _NOISE,
        ),
    ),
    *of_kind(
        "campaign",
        Fault(
            "points in another precision are another search's",
            "results/other_search.py",
            '(*COHORT, "precision", "settings")',
            '(*COHORT, "settings")',
            "tests/bad_input/test_other_search.py",
        ),
        Fault(
            "two draws of one run pass as one",
            "results/collect.py",
            "_WHERE_IT_RAN = [\n",
            '_WHERE_IT_RAN = [\n    "streams",\n',
            "tests/results/test_results.py",
        ),
        Fault(
            "a plan's noise may cost one percent more than its budget",
            "study/affordable.py",
            "_SLACK = 1 + 1e-6",
            "_SLACK = 1.01",
            "tests/study/test_affordable.py",
        ),
        Fault(
            "a search's steps are rounded to the nearest number",
            "cli/search_options.py",
            "math.ceil(epochs * examples / batch_size)",
            "round(epochs * examples / batch_size)",
            "tests/cli/test_calibrate.py",
        ),
        Fault(
            "own data: a grid's noise is said to pay for its runs alone",
            "analysis/noise.py",
            'row["grid_size"] = study.shared_budgets.get(row["dataset"], row["grid_size"])',
            "pass",
            "tests/analysis/test_noise.py",
        ),
        Fault(
            "own data: what a search costs is said of a whole study",
            "analysis/search_costs.py",
            "if at is None or dataset in study.shared_budgets:",
            "if at is None:",
            "tests/analysis/test_noise.py",
        ),
        Fault(
            "own data: a budget is said to be a grid's",
            "analysis/study.py",
            '"whole study" if dataset in self.shared_budgets else "whole grid"',
            '"whole grid"',
            "tests/analysis/test_noise.py",
        ),
        Fault(
            "own data: what a grid's size costs is told by two studies",
            "reporting/page/headline.py",
            "{*study.datasets} - {*study.shared_budgets}",
            "{*study.datasets}",
            "tests/analysis/test_noise.py",
        ),
        Fault(
            "of rows that are alike in all but their ledgers one is looked at",
            "results/row_claims.py",
            'runs[["run_id", *_CLAIM]].drop_duplicates(_CLAIM)',
            'runs[["run_id", *_CLAIM]].drop_duplicates(_CLAIM[:-1])',
            "tests/results/test_every_row.py",
        ),
    ),
]
