"""What each rule's jobs get, as Snakemake lays them out, and the functions that the rules share."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.study.conftest import BASE

from oso_dp.errors import OsoError
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import estimate_memory_mb, estimate_minutes

# More than ten shards of a cohort, a GPU, texts, and data sets of different size.
STUDY = {
    "name": "whole",
    "results": "kept",
    "report": "page",
    "datasets": {
        "mnist": {"model": "cnn", "epsilons": [3, 9], "seconds_per_step": 0.5},
        "fashion_mnist": {"model": "autoencoder", "epsilons": [3], "seconds_per_step": 2},
        "ag_news_partial": {"model": "bag_of_words_25", "epsilons": [9], "seconds_per_step": 0.1},
    },
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [3, 5],
    "seeds": [0, 1],
    "runs_per_job": 4,
    "threads_per_job": 3,
    "device": "cuda",
}
# Snakemake in a process of its own: what is asked of each job, when it is sent for the n-th time.
LAY_OUT = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings import types

snakefile, configfile, out = map(Path, sys.argv[1:])
sys.argv = ["snakemake", "-n"]
with SnakemakeApi(types.OutputSettings(dryrun=True, quiet={types.Quietness.ALL})) as api:
    workflow = api.workflow(
        resource_settings=types.ResourceSettings(cores=4),
        config_settings=types.ConfigSettings(configfiles=[configfile]),
        snakefile=snakefile,
        workdir=Path.cwd(),
    )
    targets = {"all", "cosine", "signs"}
    workflow.dag(types.DAGSettings(targets=targets)).execute_workflow(executor="dryrun")

    def plain(value):
        return value if isinstance(value, (str, int)) else [str(one) for one in value]

    jobs = []
    for job in workflow._workflow.dag.jobs:
        asked = {"rule": job.rule.name, "shell": job.shellcmd, "threads": job.threads}
        asked["wildcards"] = dict(job.wildcards.items())
        asked["input"] = sorted(str(one) for one in job.input)
        asked["params"] = {
            name: plain(value) if isinstance(value, (list, int)) else str(value)
            for name, value in job.params.items()
        }
        for attempt in (1, 2):
            job.attempt = attempt
            asked[f"attempt {attempt}"] = {
                name: job.resources.get(name) for name in ("mem_mb", "runtime", "gpu")
            }
        jobs.append(asked)
out.write_text(json.dumps(jobs))
"""
PARTS = "build/whole/parts"
PLAN = "build/whole/plan.json"


@pytest.fixture(scope="module")
def study():
    return parse_config(STUDY, "study")


@pytest.fixture(scope="module")
def planned(study):
    return {cohort.name: cohort for cohort in make_cohorts(study)}


@pytest.fixture(scope="module")
def jobs(repo, tmp_path_factory) -> dict[str, list[dict]]:
    """By rule."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    (folder / "kept").mkdir()
    (folder / "kept/plan.json").touch()  # the store's own plan
    command = [sys.executable, "-c", LAY_OUT, repo / "Snakefile", "study.yaml", "out.json"]
    environment = {**os.environ, "PYTHONPATH": str(repo / "src")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict]] = {}
    for job in json.loads((folder / "out.json").read_text()):
        found.setdefault(job["rule"], []).append(job)
    return found


def asks(job: dict) -> list[tuple]:
    """Megabytes, minutes and GPUs, when it is sent for the first and the second time."""
    return [tuple(job[f"attempt {n}"][k] for k in ("mem_mb", "runtime", "gpu")) for n in (1, 2)]


def only(jobs: dict[str, list[dict]], rule: str) -> dict:
    (job,) = jobs[rule]
    return job


BUILD, LOGS = "build/whole", "build/whole/logs"
PLANS = f"--plan=kept/plan.json --plan={PLAN}"
SIGNS = (
    f"oso diagnose signs --plan {PLAN} --cohort {{1}} --learning-rate 1 --data build/data/{{0}}.npz"
    f" --output {BUILD}/adaptation_signs.csv --steps 250 --threads 3"
)
# Of each rule with one job: its command, what it waits for beside parts, threads, and needs.
SINGLE = {
    "account": (
        f"oso account kept {PLANS} --output {BUILD}/accounting.csv",
        [f"{BUILD}/collected.txt", PLAN],
        *(1, (2000, 60, None)),
    ),
    "report_page": (
        f"oso report --results kept --output {BUILD}/report {PLANS}",
        [f"{BUILD}/accounting.csv", PLAN],
        *(4, (3000, 60, None)),
    ),
    "publish": (
        f"oso publish {BUILD}/report --output page > {BUILD}/published.txt",
        [f"{BUILD}/report/index.html"],
        *(1, None),
    ),
    "cosine": (
        f"oso diagnose cosine --plan {PLAN} --cohort mnist.online.k5.eps9"
        f" --data build/data/mnist.npz --output {BUILD}/cosine.csv --threads 3",
        ["build/data/mnist.npz", PLAN],
        *(3, None),
    ),
    "signs": (
        f"( {SIGNS.format('mnist', 'mnist.online.k5.eps9')}"
        f" && {SIGNS.format('fashion_mnist', 'fashion_mnist.online.k5.eps3')} )",
        ["build/data/fashion_mnist.npz", "build/data/mnist.npz", PLAN],
        *(3, None),
    ),
}


def command(job: dict) -> str:
    return re.split(rf" > {LOGS}| > build/data| 2> ", job["shell"])[0]


def test_rules_match_tested_rules(jobs) -> None:
    assert jobs.keys() == {*SINGLE, "plan", "data", "train", "collect", "all"}
    assert only(jobs, "all")["input"] == [f"{BUILD}/collected.txt", f"{BUILD}/published.txt"]


@pytest.mark.parametrize("rule", SINGLE)
def test_rules_single_job_values_match(jobs, study, planned, rule) -> None:
    expected, inputs, threads, needs = SINGLE[rule]
    job = only(jobs, rule)
    assert (command(job), job["input"], job["threads"]) == (expected, inputs, threads)
    if needs is not None:
        assert asks(job) == [needs, (2 * needs[0], 2 * needs[1], None)]
    if rule in ("cosine", "signs"):
        cohort = planned["mnist.online.k5.eps9"]
        memory = [estimate_memory_mb(study, cohort, attempt) for attempt in (1, 2)]
        assert asks(job) == [(memory[0], 120, 1), (memory[1], 240, 1)]


def test_train_jobs_runs_and_resources_match(jobs, study, planned) -> None:
    expected = {}
    for name, cohort in planned.items():
        for shard, runs in enumerate(cohort.shards(study.runs_per_job)):
            expected[name, str(shard)] = (
                [run.run_id for run in runs],
                sorted([f"build/data/{cohort.data_file}", PLAN]),
                3,
                [
                    (
                        estimate_memory_mb(study, cohort, attempt),
                        estimate_minutes(study, cohort, runs),
                        1,
                    )
                    for attempt in (1, 2)
                ],
                f"oso train --plan {PLAN} --cohort {name} --shard {shard} "
                f"--data build/data/{cohort.data_file} --output {PARTS}/{name}/shard{shard} "
                "--store kept --allow-missing-store --threads 3",
            )
    assert max(int(shard) for _, shard in expected) > 10
    found = {}
    for job in jobs["train"]:
        key = job["wildcards"]["cohort"], job["wildcards"]["shard"]
        runs = job["params"]["runs"]
        found[key] = (runs, job["input"], job["threads"], asks(job), command(job))
    assert found == expected


def test_data_jobs_preparation_matches(jobs, planned) -> None:
    expected = set()
    for cohort in planned.values():
        words = ["oso data", cohort.dataset, " ".join(cohort.data_options), "--output"]
        expected.add(" ".join([*words, f"build/data/{cohort.data_file}"]))
    assert {command(job) for job in jobs["data"]} == expected
    assert len(jobs["data"]) == len(expected)
    assert {ask[:1] for job in jobs["data"] for ask in asks(job)} == {(4000,)}


def test_plan_job_gets_whole_configuration(jobs, study) -> None:
    job = only(jobs, "plan")
    given = json.loads(job["params"]["config"])
    assert parse_config(given, "the job's") == study
    assert command(job).endswith(f"' | oso plan --config - --output {PLAN}")
    assert asks(job) == [(1500, 30, None), (3000, 60, None)]


def test_collect_job_waits_for_parts(jobs, study, planned) -> None:
    job = only(jobs, "collect")
    parts = [
        f"{PARTS}/{name}/shard{shard}"
        for name, cohort in planned.items()
        for shard in range(len(cohort.shards(study.runs_per_job)))
    ]
    data = "build/data/ag_news_partial-25.npz"
    tables = [f"{part}/{kind}.parquet" for part in parts for kind in ("runs", "evaluations")]
    assert job["input"] == sorted([*tables, PLAN, data])
    collect = f"oso collect {' '.join(parts)} --store kept --plan {PLAN} --data={data} > {BUILD}"
    assert command(job).startswith(collect)
    assert asks(job) == [(3000, 60, None), (6000, 120, None)]


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


def test_rules_shell_errors_not_ignored(repo, rules) -> None:
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


def test_job_minutes_stored_runs_excluded(common) -> None:
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


def test_rules_shell_values_quoted(repo) -> None:
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
        ("--plan", "not begin with '-'"),
        ("a{b}", "must not contain {, } or"),
        ("~nobody-of-this-name/x", "no such user"),
    ],
)
def test_parse_config_invalid_folder_rejected(repo, key, value, says) -> None:
    values = load_config(repo / "config/ci/smoke.yaml").model_dump(mode="json")
    with pytest.raises(OsoError, match=rf"^mine: {key}: .*{says}") as error:
        parse_config({**values, key: value}, "mine")
    assert "\n" not in str(error.value)


def test_parse_config_equal_folders_rejected(repo) -> None:
    values = load_config(repo / "config/ci/smoke.yaml").model_dump(mode="json")
    with pytest.raises(OsoError, match=r"report: x; must be another folder than results"):
        parse_config({**values, "report": "./x", "results": "x"}, "mine")
