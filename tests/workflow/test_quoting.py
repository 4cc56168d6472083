"""No value of a configuration is anything but itself to a shell."""

import re
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.config import load_config, parse_config


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
