"""The rules of the workflow: quoting, errors, and the functions that they share."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.study.conftest import BASE

from oso_dp.errors import OsoError
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts


@pytest.fixture(scope="module")
def rules(repo) -> dict[str, str]:
    """The text of each rule, by its name."""
    found = {}
    for path in sorted((repo / "workflow/rules").glob("*.smk")):
        for text in re.split(r"^(?=rule )", path.read_text(), flags=re.M)[1:]:
            found[re.match(r"rule (\w+):", text)[1]] = text
    return found


def part(rule: str, name: str) -> str:
    found = re.search(rf"^    {name}:\n((?:        .*\n)+)", rule, re.M)
    return found[1] if found else ""


def test_no_command_forgives_an_error(repo, rules) -> None:
    for name, rule in rules.items():
        assert not re.search(r"\|\||; |\btrue\b|set \+", part(rule, "shell")), name
    common = (repo / "workflow/rules/common.smk").read_text()
    assert 'shell.prefix(\n    "set -euo pipefail; "' in common


@pytest.fixture
def common(repo):
    """The functions that the rules share, with a study of two jobs per cohort; by name."""
    study = parse_config({**BASE, "values_per_axis": [5, 9], "runs_per_job": 7}, "x")
    every = {cohort.name: cohort for cohort in make_cohorts(study)}
    text = (repo / "workflow/rules/common.smk").read_text()
    names = {"Path": Path, "STUDY": study, "COHORTS": every, "STORED_RUNS": set()}
    names |= {"BUILD": Path("build/test"), "LOGS": Path("build/test/logs"), "STORE": Path("kept")}
    for function in re.findall(r"^def .*?(?=^\S|\Z)", text, flags=re.M | re.S):
        exec(function, names)
    return SimpleNamespace(names=names, **{key: names[key] for key in ("STUDY", "COHORTS")})


def test_a_job_asks_for_the_time_of_the_runs_that_are_not_stored(common) -> None:
    asked = []

    def minutes(study, cohort, runs):
        asked.append((study, cohort.name, [run.run_id for run in runs]))
        return 5

    common.names["estimate_minutes"] = minutes
    name, cohort = next(iter(common.COHORTS.items()))
    ids = [run.run_id for run in cohort.shards(7)[1]]
    common.names["STORED_RUNS"].add(ids[0])
    assert common.names["job_minutes"](SimpleNamespace(cohort=name, shard="1")) == 5
    assert asked == [(common.STUDY, name, ids[1:])]


def shell_commands(path: Path) -> str:
    return "".join(re.findall(r"^    shell:\n((?:        .*\n)+)", path.read_text(), re.MULTILINE))


def test_whatever_a_rule_puts_into_a_shell_is_quoted(repo) -> None:
    values = [
        value
        for path in sorted((repo / "workflow/rules").glob("*.smk"))
        for value in re.findall(r"\{([^{}]+)\}", shell_commands(path))
    ]
    assert len(values) > 30
    assert [value for value in values if not value.endswith(":q")] == []


@pytest.mark.parametrize("key", ["results", "report", "data_dir"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "must name a folder"),
        ("  ", "must name a folder"),
        ("--plan", "not begin with '-'"),
        ("a{b}", "must not contain {, } or"),
        ("a\nb", "must not contain {, } or"),
        ("a\0b", "must not contain {, } or"),
        ("~nobody-of-this-name/x", "no such user"),
    ],
)
def test_what_is_no_folder_is_refused(repo, key, value, says) -> None:
    values = load_config(repo / "config/ci/smoke.yaml").model_dump(mode="json")
    with pytest.raises(OsoError, match=rf"^mine: {key}: .*{says}") as error:
        parse_config({**values, key: value}, "mine")
    assert "\n" not in str(error.value)


def test_results_and_report_are_two_folders(repo) -> None:
    values = load_config(repo / "config/ci/smoke.yaml").model_dump(mode="json")
    with pytest.raises(OsoError, match=r"report: x; must be another folder than results"):
        parse_config({**values, "report": "./x", "results": "x"}, "mine")
