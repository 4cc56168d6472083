"""Faults of tables, pages and commands that the tests of their room once did not see."""

from fault import Fault, of_kind

OVERLOOKED_PAGES = [
    *of_kind(
        "reported",
        Fault(
            "an advice's interval is not told in margins",
            "choosing/recommend.py",
            "(one.gain - one.gain_half) / one.margin",
            "one.gain / one.margin - one.gain_half",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "a lead over one seed is called sure",
            "reporting/page/headline.py",
            'min(first["seeds"], second["seeds"]) < 2',
            'max(first["seeds"], second["seeds"]) < 2',
            "tests/reporting/test_headline.py",
        ),
        Fault(
            "the winner of an error is the highest",
            "reporting/tables/checkpoint_rules.py",
            "ascending=[not higher, True]",
            "ascending=[False, True]",
            "tests/reporting/test_checkpoint_rules.py",
        ),
        Fault(
            "the nearest budget is that of any data set",
            "choosing/recommend.py",
            "    known = {one.epsilon for one in every if one.dataset == dataset}",
            "    known = {one.epsilon for one in every}",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "a data set counts between the budgets of another",
            "choosing/recommend.py",
            "    known = [one.epsilon for one in every if one.dataset == dataset]",
            "    known = [one.epsilon for one in every]",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "an advice's value is printed with its gain's interval",
            "cli/recommend.py",
            "{line.mean:.2f} ± {line.std:.2f}",
            "{line.mean:.2f} ± {line.gain_half:.2f}",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "the split of a step is printed the other way round",
            "cli/search_options.py",
            "f\"{noise_text(entry['gradient_noise_multiplier'])}, second query \"\n"
            "            f\"{noise_text(entry['query_noise_multiplier'])}\"",
            "f\"{noise_text(entry['query_noise_multiplier'])}, second query \"\n"
            "            f\"{noise_text(entry['gradient_noise_multiplier'])}\"",
            "tests/cli/test_calibrate.py",
        ),
        Fault(
            "a study's table has the split of a step the other way round",
            "cli/calibrate.py",
            '"gradient": options.SPLIT[0],\n        "query": options.SPLIT[1],',
            '"gradient": options.SPLIT[1],\n        "query": options.SPLIT[0],',
            "tests/cli/test_calibrate.py",
        ),
        Fault(
            "own data: the page counts the stored runs as what was charged",
            "reporting/tables/accounting.py",
            'f"All {account.runs} runs on',
            'f"All {account.stored} runs on',
            "tests/reporting/test_accounts.py",
        ),
        Fault(
            "own data: the page prints the budget as what was spent",
            "reporting/tables/accounting.py",
            "{spent_text(account.spent)} of {account.epsilon:g}",
            "{spent_text(account.epsilon)} of {account.epsilon:g}",
            "tests/reporting/test_accounts.py",
        ),
        Fault(
            "two seeds pass as as many as the paper's",
            "reporting/page/headline.py",
            "    if fewest >= SEEDS:",
            "    if fewest > 1:",
            "tests/reporting/test_headline.py",
        ),
        Fault(
            "what is worse than printed has the sign of what is better",
            "reporting/page/matrix.py",
            'verdicts.WORSE: ("−", "no"),',
            'verdicts.WORSE: ("+", "no"),',
            "tests/reporting/test_matrix.py",
        ),
        Fault(
            "another point that is better looks like one that is as good",
            "reporting/page/matrix.py",
            'verdicts.OTHER: ("≠", "no"),',
            'verdicts.OTHER: ("≈", "yes"),',
            "tests/reporting/test_matrix.py",
        ),
        Fault(
            "the legend calls worse better",
            "reporting/page/matrix.py",
            'verdicts.WORSE: "worse than printed"',
            'verdicts.WORSE: "better than printed"',
            "tests/reporting/test_matrix.py",
        ),
        Fault(
            "a summary's seeds are the runs of the whole grid",
            "reporting/summary.py",
            "str(row.seeds)",
            "str(row.runs)",
            "tests/reporting/test_summary.py",
        ),
        Fault(
            "a user's own data are looked for to be trained on again",
            "verification/again.py",
            "cohort.data_version is None and ",
            "",
            "tests/verification/test_again.py",
        ),
        Fault(
            "a summary prints the last values",
            "reporting/summary.py",
            "labels.spread(row.mean, row.std)",
            "labels.spread(row.last_mean, row.last_std)",
            "tests/reporting/test_summary.py",
        ),
        Fault(
            "a summary's point lost the runs of its grid",
            "reporting/summary.py",
            '{row.best_diverged} diverged" if row.best_diverged',
            '{row.diverged} diverged" if row.diverged',
            "tests/reporting/test_summary.py",
        ),
        Fault(
            "longer runs than the paper's pass as its own",
            "labels.py",
            "if not missing(value)} - {PAPER_EPOCHS}",
            "if not missing(value) and value < PAPER_EPOCHS}",
            "tests/reporting/test_labels.py",
        ),
    ),
]
