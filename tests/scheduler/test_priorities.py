"""What trains first is what the file says; a file that says nothing is refused."""

import tomllib
from collections import defaultdict

import pytest

from oso_dp.errors import OsoError
from oso_dp.scheduler.priorities import list_jobs, rank_runs, read_priorities
from oso_dp.study.grid import paper_best_runs
from oso_dp.study.plan import make_plan_with_noise


@pytest.fixture
def read(mnist, tmp_path):
    def read_text(text: str, *plans):
        path = tmp_path / "priorities.toml"
        path.write_text(text)
        return read_priorities(path, list_jobs(plans or [mnist]))

    return read_text


def runs_of(level):
    return [(job, run) for job, runs in level for run in runs]


def test_rank_runs_priorities_precede_paper_runs(mnist, read) -> None:
    text = """
        [[first]]
        method = ["online", "adam_wosm"]
        k = 9
        epsilon = [3, 9.0]
        seed = [0, 1]
        [[first]]
        plan = "mnist"
        method = "no_dp"
    """
    paper = {run_id for cohort in mnist.cohorts for run_id in paper_best_runs(cohort)}
    first, second, third, rest = rank_runs(list_jobs([mnist]), read(text), paper)
    found = {(j.cohort.method, j.cohort.k, j.cohort.epsilon, r.seed) for j, r in runs_of(first)}
    wanted = [("online", 9), ("adam_wosm", 9)]
    assert found == {(*w, e, s) for w in wanted for e in (3, 9) for s in (0, 1)}
    assert {job.cohort.method for job, _ in runs_of(second)} == {"no_dp"}
    assert {run.run_id for _, run in runs_of(third)} == paper
    assert [run.run_id for _, run in runs_of(rest)] == mnist.run_ids()


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (["online/mnist"], 12),
        (["*/mnist"], 51),
        (["fixed_*/*"], 24),
        (["online/*", "no_dp/*", "online/mnist"], 15),
        ([], 51),
    ],
)
def test_list_jobs_filter_selects_cohorts(mnist, patterns, count) -> None:
    assert len(list_jobs([mnist], patterns)) == count


@pytest.mark.parametrize("written", ["{:.3g}", "{:.6g}", "{!r}"])
@pytest.mark.parametrize("axis", ["learning_rate", "threshold", "quantile"])
def test_read_priorities_values_match_three_digits(mnist, read, axis, written) -> None:
    values = {getattr(run, axis) for cohort in mnist.cohorts for run in cohort.runs} - {None}
    value = sorted(values)[1]
    (level, *_) = rank_runs(
        list_jobs([mnist]), read(f"[[first]]\n{axis} = {written.format(value)}\n")
    )
    assert {getattr(run, axis) for _, run in runs_of(level)} == {value}
    for beside in (0.98, 0.99, 1.01, 1.02):
        with pytest.raises(OsoError, match="matches no run"):
            read(f"[[first]]\n{axis} = {beside * value!r}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must have only tables"),
        ("[[first]]", "entry 1: must have at least one of the keys plan, dataset"),
        (
            "[[first]]\nk = 9\n[[first]]\nsize = 9",
            "entry 2: size: unknown key; must be one of plan",
        ),
        ('[[first]]\nk = "9"', "entry 1: k: '9'; must be a number"),
        (f"[[first]]\nlearning_rate = {'9' * 400}", "entry 1: learning_rate: 999+; must be a num"),
        ("[[first]]\nk = []", r"entry 1: k: \[\]; must be a number"),
        ('[[first]]\nstage = "final"', r"entry 1: stage = final; matches no run of mnist"),
        ("[[first]]\nmethod = 3", "entry 1: method: 3; must be text"),
        ("[[first]]\nk = 9\nepsilon = 4", r"entry 1: k = 9; epsilon = 4; matches no run"),
        ('[[first]]\nplan = "another"', "no entry is for the plans mnist"),
        ("[[first]\n", "cannot be read as TOML"),
        ("a = [" * 3000, "cannot be read as TOML"),
    ],
)
def test_read_priorities_invalid_file_rejected(read, text, says) -> None:
    with pytest.raises(OsoError, match=rf"priorities\.toml: {says}") as error:
        read(text)
    assert "\n" not in str(error.value)


def test_read_priorities_shipped_file_matches_plans(repo) -> None:
    from oso_dp.study.config import load_config

    lines = (repo / "Makefile").read_text().splitlines()
    line = next(line for line in lines if line.startswith("PLANS"))
    path = repo / "config/priorities.toml"
    asked = [entry.get("plan", []) for entry in tomllib.loads(path.read_text())["first"]]
    named = {name for plan in asked for name in ([plan] if isinstance(plan, str) else plan)}
    files = {
        load_config(path).name: path
        for path in (repo / "config").rglob("*.yaml")
        if path.stem != "pate"
    }
    paths = {repo / f"config/{name}.yaml" for name in line.split("=")[1].split()}
    configs = [load_config(path) for path in sorted(paths | {files[name] for name in named})]
    jobs = list_jobs([make_plan_with_noise(config, defaultdict(lambda: 1.0)) for config in configs])
    assert len(read_priorities(path, jobs)) == path.read_text().count("[[first]]")
