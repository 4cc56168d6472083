"""What goes first is what the file says, and a file that says nothing is refused."""

import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from oso_dp.campaign.order import all_work, portions
from oso_dp.campaign.priorities import read_priorities
from oso_dp.campaign.speed import Speed
from oso_dp.errors import OsoError
from oso_dp.study.paper_points import papers_best_runs


@pytest.fixture
def read(mnist, tmp_path):
    def read_text(text: str):
        path = tmp_path / "priorities.toml"
        path.write_text(text)
        return read_priorities(path, all_work([mnist]))

    return read_text


def order(mnist, priorities, later=()):
    speed = Speed({"mnist": 0.4})
    return portions(all_work([mnist]), (), (), speed, priorities, later)


def test_entries_come_in_their_order_and_all_else_behind_them(mnist, read) -> None:
    found = order(
        mnist,
        read(
            """
            [[first]]
            method = ["online", "adam_wosm"]
            k = 9
            epsilon = [3, 9.0]
            seed = [0, 1]
            [[first]]
            plan = "mnist"
            method = "no_dp"
            """
        ),
    )
    first, second, rest = found[:4], found[4:7], found[7:]
    for each in first:
        cohort = each.work.cohort
        assert cohort.method in ("online", "adam_wosm")
        assert (cohort.k, cohort.epsilon in (3, 9)) == (9, True)
        assert {run.seed for run in each.runs} == {0, 1}
        assert len(each.runs) == 2 * 9
    assert {each.work.cohort.method for each in second} == {"no_dp"}
    assert {each.work.cohort.k for each in second} == {5, 7, 9}
    everything = {run.run_id for cohort in mnist.cohorts for run in cohort.runs}
    assert {run.run_id for each in rest for run in each.runs} == everything


def test_what_is_slow_here_comes_last_even_if_it_is_worth_most(mnist, read) -> None:
    chosen = read('[[first]]\nmethod = "online"\n')
    assert order(mnist, chosen)[0].work.cohort.method == "online"
    assert order(mnist, chosen, later=("float32",)) == order(mnist, chosen)  # all alike
    assert order(mnist, chosen, later=("bfloat16",)) == order(mnist, chosen)


def test_runs_in_a_slow_precision_come_behind_all_others(mnist, read) -> None:
    """Also those that the file names, and none is lost."""
    cohorts = [
        replace(cohort, precision="bfloat16") if cohort.method == "online" else cohort
        for cohort in mnist.cohorts
    ]
    works = all_work([replace(mnist, cohorts=tuple(cohorts))])
    speed, chosen = Speed({"mnist": 0.4}), read('[[first]]\nmethod = ["online", "no_dp"]\n')
    found = portions(works, (), (), speed, chosen, later=("bfloat16",))
    precisions = [each.work.cohort.precision for each in found]
    assert precisions == ["float32"] * (3 + 39) + ["bfloat16"] * (12 + 12)
    assert {each.work.cohort.method for each in found[:3]} == {"no_dp"}


def test_what_the_file_names_comes_before_the_papers_best(mnist, read) -> None:
    """Which come before all else."""
    best = {
        run_id
        for cohort in mnist.cohorts
        if cohort.method == "online"
        for run_id in papers_best_runs(cohort)
    }
    chosen = read('[[first]]\nmethod = "no_dp"\n')
    order = portions(all_work([mnist]), best, (), Speed({"mnist": 0.4}), chosen)
    methods = [portion.work.cohort.method for portion in order]
    assert methods[: 3 + 12] == ["no_dp"] * 3 + ["online"] * 12
    assert {run.run_id for portion in order[3:15] for run in portion.runs} == best


def test_entries_of_other_plans_wait(mnist, read) -> None:
    found = read('[[first]]\nplan = "another"\n[[first]]\nseed = 4\n')
    assert [each.number for each in found] == [2]


def test_a_run_of_two_plans_is_selected_by_the_name_of_either(mnist, tmp_path) -> None:
    cohorts = tuple(cohort for cohort in mnist.cohorts if cohort.method == "online")
    other = replace(mnist, name="other", cohorts=cohorts)
    path = tmp_path / "priorities.toml"
    path.write_text('[[first]]\nplan = "other"\n')
    for plans in ([mnist, other], [other, mnist]):
        works = all_work(plans)
        (entry,) = read_priorities(path, works)
        taken = {run for work in works for run in work.cohort.runs if entry.takes(work, run)}
        assert taken == {run for cohort in cohorts for run in cohort.runs}


def test_a_part_and_a_learning_rate_select_runs(mnist, tmp_path) -> None:
    """The final run that the trials ask for, of all that a plan holds."""
    online = next(cohort for cohort in mnist.cohorts if cohort.method == "online")
    scaled = replace(online, selection="linear_scaling", trial_shares=(0.1, 0.2), part="final")
    parts = [replace(scaled, part="trial 1"), scaled, online]
    runs = [
        tuple(replace(run, run_id=f"{run.run_id}.{number}") for run in cohort.runs)
        for number, cohort in enumerate(parts)
    ]
    cohorts = tuple(replace(cohort, runs=own) for cohort, own in zip(parts, runs, strict=True))
    works = all_work([replace(mnist, cohorts=cohorts)])
    path = tmp_path / "priorities.toml"

    def taken(text: str) -> list[tuple[str | None, float, int]]:
        path.write_text(f"[[first]]\n{text}\n")
        (entry,) = read_priorities(path, works)
        return [
            (work.cohort.part, run.learning_rate, run.seed)
            for work in works
            for run in work.cohort.runs
            if entry.takes(work, run)
        ]

    rates = sorted({run.learning_rate for run in online.runs})
    rate = rates[1]
    for beside in (0.98, 0.99, 1.01, 1.02):
        with pytest.raises(OsoError, match="selects no run"):
            taken(f"learning_rate = {beside * rate!r}")
    for written in (f"{rate:.3g}", f"{rate:.6g}", repr(rate)):
        found = taken(f'part = "final"\nlearning_rate = {written}\nseed = [0, 2]')
        assert found == [("final", rate, 0), ("final", rate, 2)]
    assert {part for part, _, _ in taken('part = ["trial 1", "final"]')} == {"trial 1", "final"}
    assert {part for part, _, _ in taken(f"learning_rate = {rates[0]:.3g}")} == {
        *("trial 1", "final"),
        None,
    }


def test_starting_values_select_runs(mnist, read) -> None:
    threshold, quantile = read(
        """
        [[first]]
        k = 9
        threshold = [0.316, 7]
        [[first]]
        quantile = 0.3
        """
    )
    runs = [(work, run) for work in all_work([mnist]) for run in work.cohort.runs]
    starts = {round(run.threshold, 3) for work, run in runs if threshold.takes(work, run)}
    assert starts == {0.316}
    assert {run.quantile for work, run in runs if quantile.takes(work, run)} == {0.3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("first = 1", "must hold tables"),
        ("", "must hold tables"),
        ("[[first]]\nk = 9\n[other]\nx = 1", "must hold tables"),
        ("[[first]]", "entry 1: must name at least one of plan, dataset"),
        ("[[first]]\nk = 9\n[[first]]\nsize = 9", "entry 2: size: unknown key; allowed are plan"),
        ('[[first]]\nk = "9"', "entry 1: k = '9': must be a number"),
        (
            f"[[first]]\nlearning_rate = {'9' * 400}",
            "entry 1: learning_rate: a number must be at most",
        ),
        (f"[[first]]\nk = [9, -{'9' * 400}]", "entry 1: k: a number must be at most 1e\\+18"),
        ("[[first]]\nk = true", "entry 1: k = True: must be a number"),
        ("[[first]]\nk = []", r"entry 1: k = \[\]: must be a number"),
        ("[[first]]\npart = 1", "entry 1: part = 1: must be text"),
        ('[[first]]\npart = "final"', r"entry 1 \(part = final\) selects no run of mnist"),
        ("[[first]]\nlearning_rate = 0.3", r"entry 1 \(learning_rate = 0.3\) selects no run"),
        ("[[first]]\nmethod = 3", "entry 1: method = 3: must be text"),
        ("[[first]]\nk = 6", r"entry 1 \(k = 6\) selects no run of mnist"),
        ('[[first]]\nmethod = "onlin"', r"entry 1 \(method = onlin\) selects no run of mnist"),
        ("[[first]]\nk = 9\nepsilon = 4", r"entry 1 \(k = 9; epsilon = 4\) selects no run"),
        ('[[first]]\nplan = "another"', "all entries are for plans that are not here"),
        ("[[first]\n", "not TOML"),
    ],
)
def test_a_mistake_is_named(read, text, says) -> None:
    with pytest.raises(OsoError, match=rf"priorities\.toml: {says}") as error:
        read(text)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(mnist) -> None:
    with pytest.raises(OsoError, match=r"nowhere\.toml: cannot be read"):
        read_priorities(Path("nowhere.toml"), all_work([mnist]))


def test_the_project_s_own_priorities_select_runs_of_its_plans(repo, monkeypatch) -> None:
    """Each entry, of the configurations that `make campaign` takes, or that it names itself."""
    from oso_dp.study.config import load_config
    from oso_dp.study.plan import plan_of

    line = next(
        line for line in (repo / "Makefile").read_text().splitlines() if line.startswith("PLANS")
    )
    path = repo / "config/priorities.toml"
    asked = [entry.get("plan", []) for entry in tomllib.loads(path.read_text())["first"]]
    named = {name for plan in asked for name in ([plan] if isinstance(plan, str) else plan)}
    taken = line.split("=")[1].split()
    names = [*taken, *sorted(named - {*taken})]
    configs = [load_config(repo / f"config/{name}.yaml") for name in names]
    everything = all_work([plan_of(config, defaultdict(lambda: 1.0)) for config in configs])
    found = read_priorities(path, everything)
    assert len(found) == path.read_text().count("[[first]]")
