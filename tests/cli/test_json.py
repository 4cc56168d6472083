"""What a command prints with --json is JSON: other programs read no NaN and no Infinity."""

import json
import math

import pytest

from oso_dp.cli import calibration_options
from oso_dp.files import json_text

SIZE = ("--examples", 6000, "--batch-size", 512, "--epochs", 1)
EVERY = {
    "calibrate": ("calibrate", "--epsilon", 3, *SIZE, "--runs", 9),
    "calibrate, stopped by Poisson": (
        *("calibrate", "--epsilon", 3, *SIZE, "--runs", 9),
        *("--search-accounting", "random-stopping", "--stopping-distribution", "poisson"),
    ),
    "calibrate, a study": ("calibrate", "--show-noise-split", "--config", "config/ci/smoke.yaml"),
    "epsilon": ("epsilon", "--noise-multiplier", 2, *SIZE, "--runs", 9),
}


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("name", EVERY)
def test_every_answer_is_json(oso, repo, monkeypatch, name) -> None:
    monkeypatch.chdir(repo)
    status, output, error = oso(*EVERY[name], "--json")
    assert (status, error) == (0, "")
    assert json.loads(output, parse_constant=refuse)


def test_no_command_has_json_that_is_not_tried(oso) -> None:
    listed = [line.split()[0] for line in oso("--help")[1].split("Commands:")[1].splitlines()[1:]
              if line.strip()]  # fmt: skip
    have = {name for name in listed if "--json" in oso(name, "--help")[1]}
    assert have == {arguments[0] for arguments in EVERY.values()}


def test_what_is_not_finite_is_null(capsys) -> None:
    text = json_text({"a": [math.nan, (math.inf, 1.5)], "b": -math.inf, "c": "NaN"})
    assert json.loads(text, parse_constant=refuse) == {
        "a": [None, [None, 1.5]],
        "b": None,
        "c": "NaN",
    }
    calibration_options.print_answer({"epsilon": math.inf}, None, as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {"epsilon": None}
