"""Faults of reports, campaigns and verifications that no test noticed until a second search."""

from fault import Fault, of_kind

_CAMPAIGN = "tests/campaign/test_campaign.py"
_ORDER = "tests/campaign/test_order.py"
_AUDIT = "tests/audit/test_command.py"
_VERDICT = "tests/verification/test_verdict.py"
_VERIFY = "tests/cli/test_verify.py"
_STOPPED = "tests/analysis/test_random_stopping.py"
_TABLES = "tests/reporting/test_tables.py"
_PAGE = "tests/reporting/test_page.py"

OVERLOOKED_AGAIN_UPPER = [
    *of_kind(
        "reported",
        Fault(
            "the distribution of K is looked for at the usual delta",
            "analysis/random_stopping.py",
            'first["epsilon"], first["delta"]',
            'first["epsilon"], 1e-5',
            _STOPPED,
        ),
        Fault(
            "a search that stops has a step less than its runs",
            "analysis/random_stopping.py",
            'math.ceil(first["epochs"]',
            'math.floor(first["epochs"]',
            _STOPPED,
        ),
        Fault(
            "what holds by construction is counted where it was not run",
            "reporting/tables/claims.py",
            'hold = int((built["verdict_best"] == HOLDS).sum())',
            'hold = int((built["verdict_best"] != FAILS).sum())',
            "tests/analysis/test_claims.py",
        ),
        Fault(
            "a table of the paper's does not say how long its runs were",
            "reporting/tables/tables_02_to_13.py",
            '        *filter(None, [labels.epochs_note(data["epochs"])]),\n',
            "",
            _TABLES,
        ),
        Fault(
            "a time that nobody kept is none",
            "analysis/coverage.py",
            ".sum(min_count=1)",
            ".sum()",
            _TABLES,
        ),
        Fault(
            "a section of shorter and whole runs stands among the shorter ones",
            "reporting/page/sections.py",
            "whole = any(is_whole",
            "whole = all(is_whole",
            _PAGE,
        ),
        Fault(
            "a finding ranks shorter runs beside whole ones",
            "reporting/page/headline.py",
            "    ran = ran[whole]\n",
            "",
            _PAGE,
        ),
        Fault(
            "the largest batch size of several is shown",
            "reporting/tables/table_01.py",
            "int(used.mode()[0]) if len(used)",
            "int(used.max()) if len(used)",
            "tests/reporting/test_data_table.py",
        ),
        Fault(
            "a part of Online's grid is what others are recommended against",
            "reporting/measured_ways.py",
            'known and row["whole"] and not',
            "known and not",
            "tests/reporting/test_written.py",
        ),
        Fault(
            "a recommended way is the same whatever is laid over its steps",
            "choosing/known.py",
            "for word in (self.method, self.laid, drawn)",
            "for word in (self.method, drawn)",
            "tests/choosing/test_recommend.py",
        ),
        Fault(
            "cosines of two budgets pass as one run's",
            "analysis/measured.py",
            '["dataset", "method", "k", "epsilon", "learning_rate"]].drop',
            '["dataset", "method", "k", "learning_rate"]].drop',
            "tests/reporting/test_cosine_figures.py",
        ),
        Fault(
            "texts that are prepared anew keep their older facts",
            "results/facts.py",
            "{**stored, **new}",
            "{**new, **stored}",
            "tests/results/test_facts.py",
        ),
        Fault(
            "`oso audit` prints each one-run bound in the other's column",
            "cli/audit.py",
            "            finding.one_run_bound,\n            finding.one_run_gaussian_bound,\n",
            "            finding.one_run_gaussian_bound,\n            finding.one_run_bound,\n",
            _AUDIT,
        ),
        Fault(
            "`oso audit` prints what one run claims beside the bound of many",
            "cli/audit.py",
            "            finding.many_runs_claimed,\n            finding.many_runs_bound,\n",
            "            finding.one_run_claimed,\n            finding.many_runs_bound,\n",
            _AUDIT,
        ),
        Fault(
            "a verification does not compare the shares that were clipped",
            "verification/verdict.py",
            'columns.drop("run_id")',
            'columns.drop(["run_id", "fraction_clipped"])',
            _VERDICT,
        ),
        Fault(
            "bits are expected to be equal in another precision",
            "verification/verdict.py",
            '("device", "torch_version", "precision")',
            '("device", "torch_version")',
            _VERDICT,
        ),
        Fault(
            "`oso verify` draws one sample whatever the seed",
            "cli/verify.py",
            "order = sample(stored, seed)",
            "order = sample(stored, 0)",
            _VERIFY,
        ),
        Fault(
            "`oso verify` takes its minutes for seconds",
            "cli/verify.py",
            "60 * minutes",
            "minutes",
            _VERIFY,
        ),
    ),
    *of_kind(
        "campaign",
        Fault(
            "what is slow on this device is trained first",
            "campaign/order.py",
            "portion.work.cohort.precision in later)",
            "portion.work.cohort.precision not in later)",
            "tests/campaign/test_priorities.py",
        ),
        Fault(
            "a method is taken to be as slow as the last one that was measured",
            "campaign/speed.py",
            "max(sizes[size], by_size.get(size, 0.0))",
            "sizes[size]",
            _ORDER,
        ),
        Fault(
            "other data sets are as slow as the slowest one, next to its plan",
            "campaign/speed.py",
            "sum(scales) / len(scales)",
            "max(scales)",
            _ORDER,
        ),
        Fault(
            "a worker that fails as the last one has not failed",
            "campaign/team.py",
            "sleep(0.5)\n        _refuse_failed(workers, campaign.parts.progress)\n",
            "sleep(0.5)\n",
            "tests/campaign/test_team.py",
        ),
        Fault(
            "another device's speed is this one's",
            "campaign/parts.py",
            '(times["device"] == device) & (times["wall_seconds"] > 0)',
            '(times["wall_seconds"] > 0)',
            _CAMPAIGN,
        ),
        Fault(
            "runs that diverged early measure the speed",
            "campaign/parts.py",
            'times[times["status"] == "finished"]',
            "times",
            _CAMPAIGN,
        ),
        Fault(
            "a speed is that of the slowest run",
            "campaign/parts.py",
            ".median()",
            ".max()",
            _CAMPAIGN,
        ),
        Fault(
            "a group that diverged early measures the speed",
            "campaign/campaign.py",
            "if per_step is not None and deadline.step == cohort.steps:",
            "if per_step is not None:",
            _CAMPAIGN,
        ),
        Fault(
            "a group that went on is as quick as if it had begun anew",
            "campaign/campaign.py",
            "per_step = deadline.per_step if resumed else seconds / cohort.steps",
            "per_step = seconds / cohort.steps",
            _CAMPAIGN,
        ),
    ),
    *of_kind(
        "books",
        Fault(
            "a store in one file holds no other search, and nothing that is spent",
            "results/read.py",
            "or not _OF_A_COHORT.search(file.name)",
            "or not (file == table or _OF_A_COHORT.search(file.name))",
            "tests/bad_input/test_other_search.py",
        ),
        Fault(
            "a row is held against the first kind of its ledger's steps",
            "results/row_claims.py",
            "for nu, _ in ledger.releases():",
            "for nu, _ in ledger.releases()[:1]:",
            "tests/results/test_every_row.py",
        ),
    ),
]
