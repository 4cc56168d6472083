"""A plan read without pydantic: the same cohorts and noise, or a line that says why not."""

import json

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.cohort import cohorts
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plain import paper_best_runs, read_plain_plan, with_values
from oso_dp.study.plan import Plan, read_plan, write_plan


@pytest.fixture
def path(base, tmp_path):
    """A plan with settings of a method; the noise is made up."""
    base.update(methods={"online": {"initial_threshold": 1}, "fixed_quantile": {}, "no_dp": {}})
    base["grid"] = {"quantiles": [0.5, 0.9]}
    config = parse_config(base, "x")
    every = cohorts(config)
    noise = {cohort.name: 1.5 if cohort.private else 0.0 for cohort in every}
    write_plan(Plan(config, every, noise), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_it_is_the_plan_that_the_checked_configuration_gives(path) -> None:
    plain, checked = read_plain_plan(path), read_plan(path)
    assert plain.cohorts == checked.cohorts
    assert plain.noise_multipliers == checked.noise_multipliers
    for name in checked.config.methods:
        ours, theirs = plain.config.method(name), checked.config.method(name)
        assert (type(ours), ours.settings, ours.momentum) == (
            type(theirs),
            theirs.settings,
            theirs.momentum,
        )


def test_the_papers_best_are_those_of_spotcheck(repo) -> None:
    plain = read_plain_plan(repo / "results/plan.json")
    named = {cohort.name for cohort in plain.cohorts}  # spotcheck has Table 12's, too
    spotcheck = cohorts(load_config(repo / "config/spotcheck.yaml"))
    expected = {run.run_id for each in spotcheck if each.name in named for run in each.runs}
    assert paper_best_runs(plain.config) == expected


def test_values_are_replaced_in_a_copy(path) -> None:
    config = read_plain_plan(path).config
    assert with_values(config, device="cuda").device == "cuda"
    assert config.device == "cpu"
    assert with_values(config, device="cuda").method("online").settings.initial_threshold == 1


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("config", "evaluate_every", 10),
        ("config", "momentum", 0.5),
        ("config", "randomness", "system"),
        ("config", "seeds", [5, 6]),
        ("settings", "online", {"initial_threshold": 0.2}),
    ],
)
@pytest.mark.parametrize("read", [read_plan, read_plain_plan])
def test_a_plan_of_other_runs_than_it_says_is_refused(path, section, key, value, read) -> None:
    """Edited, or written by a version that identifies runs in another way."""
    content = json.loads(path.read_text())
    content[section][key] = value
    path.write_text(json.dumps(content))
    if (section, read) == ("settings", read_plan):
        return  # the configuration has them, too
    with pytest.raises(OsoError, match=r"plan\.json: mnist\..* was priced for run_ids"):
        read(path)


@pytest.mark.parametrize("read", [read_plan, read_plain_plan])
@pytest.mark.parametrize(("version", "found"), [(None, 1), (1, 1), (3, 3)])
def test_another_version_is_refused(path, version, found, read) -> None:
    content = json.loads(path.read_text())
    content["version"] = version
    if version is None:
        del content["version"]
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=rf"plan\.json: a plan of version {found}; .* reads 2"):
        read(path)


@pytest.mark.parametrize("missing", ["config", "settings", "cohorts"])
def test_a_plan_with_a_hole_is_refused(path, missing) -> None:
    content = json.loads(path.read_text())
    del content[missing]
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: not a plan"):
        read_plain_plan(path)
    content = json.loads("[]")
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: not a plan"):
        read_plain_plan(path)
