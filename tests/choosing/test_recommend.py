"""`oso recommend`: the surest way on data like somebody's, and nothing where none are like them."""

import csv
import json
import math
from dataclasses import asdict, replace

import pytest
from typer.testing import CliRunner

from oso_dp.accounting.said import noise_text
from oso_dp.accounting.scaled_search import ScaledSearch
from oso_dp.accounting.search import SHAPES, Search
from oso_dp.accounting.tuning import RANDOM_STOPPING
from oso_dp.choosing.known import COLUMNS, FILE, Measured, measured
from oso_dp.choosing.recommend import recommend
from oso_dp.cli.commands import app
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling

SEARCH = Measured(
    dataset="Digits",
    examples=60_000,
    parameters=20_000,
    epsilon=3.0,
    selection="composition",
    way="whole grid",
    method="Online",
    laid="",
    distribution="",
    trial_shares="",
    start="",
    chosen="the search",
    seen=False,
    runs=5,
    metric="accuracy",
    mean=90.0,
    std=0.2,
    seeds=3,
    reference=True,
    gain=math.nan,
    gain_half=math.nan,
    margin=1.0,
)
ALONE = {"selection": "default", "way": "one run", "runs": 1, "reference": False}
ONE = replace(SEARCH, **ALONE, method="Free", mean=91.0, gain=1.0, gain_half=0.3)


ASKED_FOR = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]


def others(*lines: Measured, **more) -> list[Measured]:
    return [replace(line, **more) for line in lines]


def test_the_surest_gain_wins_not_the_largest() -> None:
    wild = replace(ONE, method="Wild", mean=93.0, gain=3.0, gain_half=3.5)
    best = recommend([SEARCH, wild, ONE], 60_000, 20_000, 3.0)
    assert best.way.method == "Free"
    assert best.least_gain == pytest.approx(0.7)


def test_what_may_be_worse_does_not_beat_the_search_itself() -> None:
    maybe = replace(ONE, gain=0.2, gain_half=0.3)
    assert recommend([SEARCH, maybe], 60_000, 20_000, 3.0).way == SEARCH


@pytest.mark.parametrize("what", ["method", "laid", "distribution"])
def test_ways_that_differ_in_one_of_their_words_are_two(what: str) -> None:
    other = replace(ONE, **{what: "another"}, gain=0.5)
    for lines in ([SEARCH, ONE, other], [SEARCH, other, ONE]):
        assert recommend(lines, 60_000, 20_000, 3.0).rests_on == (ONE,)


def test_a_way_counts_where_it_does_worst() -> None:
    """On two data sets like theirs: one that fails on the other is no advice."""
    there = {"dataset": "Letters", "examples": 100_000}
    fails = [ONE, replace(ONE, **there, gain=-4.0)]
    steady = others(ONE, replace(ONE, **there), method="Steady", gain=0.4, gain_half=0.1)
    lines = [SEARCH, replace(SEARCH, **there), *fails, *steady]
    best = recommend(lines, 80_000, 20_000, 3.0)
    assert best.way.method == "Steady"
    assert [line.dataset for line in best.rests_on] == ["Digits", "Letters"]
    # On digits alone the other is the better one.
    assert recommend(lines, 25_000, 20_000, 3.0).way.method == "Free"


def test_a_way_that_was_run_on_one_of_two_alike_says_too_little() -> None:
    lines = [SEARCH, replace(SEARCH, dataset="Letters"), ONE]
    assert recommend(lines, 60_000, 20_000, 3.0).way == SEARCH


def test_the_nearest_budget_that_was_measured_counts() -> None:
    at_nine = others(replace(ONE, method="Late"), epsilon=9.0, gain=2.0)
    lines = [SEARCH, ONE, replace(SEARCH, epsilon=9.0), *at_nine]
    assert recommend(lines, 60_000, 20_000, 4.0).way.method == "Free"
    assert recommend(lines, 60_000, 20_000, 6.0).way.method == "Late"  # in the logarithm
    assert recommend(lines, 60_000, 20_000, 9.0).way.method == "Late"


@pytest.mark.parametrize(
    ("examples", "parameters", "epsilon", "says"),
    [
        (19_999, 20_000, 3.0, "not measured: 19,999 examples and a model of 20,000 parameters"),
        (180_001, 20_000, 3.0, "not measured: 180,001 examples"),
        (60_000, 1_999, 3.0, "not measured: 60,000 examples and a model of 1,999 parameters"),
        (60_000, 200_001, 3.0, "not measured: .*; measured are Digits: 60,000 examples, 20,000"),
        (60_000, 20_000, 2.99, "not measured: epsilon 2.99 on .*; measured are Digits: 3 to 9"),
        (60_000, 20_000, 9.01, "not measured: epsilon 9.01"),
    ],
)
def test_outside_of_what_was_measured_nothing_is_said(examples, parameters, epsilon, says) -> None:
    lines = [SEARCH, ONE, replace(SEARCH, epsilon=9.0)]
    with pytest.raises(OsoError, match=says):
        recommend(lines, examples, parameters, epsilon)


def test_between_the_budgets_of_two_data_sets_nothing_was_measured() -> None:
    of_letters = others(SEARCH, ONE, dataset="Letters", epsilon=9.0)
    lines = [SEARCH, ONE, replace(SEARCH, epsilon=4.0), *of_letters]
    with pytest.raises(OsoError, match=r"measured are Digits: 3 to 4; Letters: 9 to 9$"):
        recommend(lines, 60_000, 20_000, 6.0)


@pytest.mark.parametrize("what", [{"runs": 25}, {"trial_shares": "0.3,0.4"}])
def test_one_way_with_another_noise_on_each_of_two_data_sets_is_two_ways(what) -> None:
    """The command prices what it advises: the noise of one of them is not the other's."""
    free = replace(ONE, runs=5, trial_shares="0.1,0.2")
    lines = [SEARCH, free, *others(SEARCH, free, dataset="Letters")]
    assert recommend(lines, 60_000, 20_000, 3.0).way == free
    lines[-1] = replace(lines[-1], **what)
    assert recommend(lines, 60_000, 20_000, 3.0).way == SEARCH


@pytest.mark.parametrize(("examples", "parameters"), [(20_000, 2_000), (180_000, 200_000)])
def test_the_edges_of_what_is_like_them_count(examples: int, parameters: int) -> None:
    assert recommend([SEARCH, ONE], examples, parameters, 3.0).way == ONE


def test_too_few_seeds_are_no_evidence() -> None:
    with pytest.raises(OsoError, match="not measured: no way to spend epsilon 3 with 3 seeds"):
        recommend(others(SEARCH, ONE, seeds=2), 60_000, 20_000, 3.0)
    unsure = replace(ONE, gain_half=math.nan)
    assert recommend([SEARCH, unsure], 60_000, 20_000, 3.0).way == SEARCH


def test_nothing_measured_is_said_so() -> None:
    with pytest.raises(OsoError, match=r"not measured: .*; measured are none"):
        recommend([], 60_000, 20_000, 3.0)


def test_the_package_s_own_lines_can_be_read() -> None:
    lines = list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()))
    assert list(lines[0]) == COLUMNS
    assert len(measured()) == len(lines)
    for line, one in zip(lines, measured(), strict=True):
        read = {name: str(value) for name, value in asdict(one).items()}
        numbers = {"mean", "std", "gain", "gain_half", "margin"}
        assert {name: read[name] for name in read.keys() - numbers} == {
            name: line[name] for name in line.keys() - numbers
        }
        for name in numbers:
            assert getattr(one, name) == pytest.approx(float(line[name]), nan_ok=True)


def test_the_command_says_what_its_advice_rests_on(monkeypatch) -> None:
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (SEARCH, ONE))
    asked = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Free: one run\n  noise multiplier 0.8373, runs of 1172 steps")
    assert "Digits, 60,000 examples, 20,000 parameters, epsilon 3: accuracy 91.00" in done.output
    assert "gain +1.00 [0.70, 1.30]" in done.output
    said = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert (said["method"], said["runs"], len(said["rests_on"])) == ("Free", 1, 1)
    assert said["noise_multipliers"] == {"": pytest.approx(0.83724, abs=1e-5)}


def test_a_default_that_was_chosen_there_says_so(monkeypatch) -> None:
    seen = replace(ONE, seen=True, start="learning_rate = 1")
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (SEARCH, seen))
    asked = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]
    said = CliRunner().invoke(app, asked).output
    assert said.startswith("Free: one run, from learning_rate = 1")
    assert "the default was chosen by looking at these data" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--examples", "60000", "--model-size", "9"], "--epsilon: must be given"),
        (["--examples", "60000", "--epsilon", "0", "--model-size", "9"], "--epsilon 0: must be"),
        (["--examples", "60000", "--epsilon", "3"], "--model-size: must be given"),
        (["--examples", "60000", "--epsilon", "3", "--model-size", "0"], "--model-size 0: must"),
        (["--epsilon", "3", "--model-size", "9"], "--examples: must be given"),
        (
            ["--examples", "600", "--epsilon", "3", "--model-size", "9", "--batch-size", "601"],
            "--batch-size 601: must be between",
        ),
    ],
)
def test_what_is_missing_or_impossible_is_named(arguments, says) -> None:
    done = CliRunner().invoke(app, ["recommend", *arguments])
    assert done.exit_code != 0
    assert str(done.exception).startswith(says)


def test_gains_on_data_of_different_metrics_are_told_apart_by_what_matters_there() -> None:
    """A tenth of a squared error weighs more than a point of accuracy where that matters less."""
    errors = {"dataset": "Clothes", "metric": "error", "margin": 0.1}
    good = others(ONE, replace(ONE, **errors, gain=0.2, gain_half=0.01), method="Good")
    bad = others(
        replace(ONE, gain=2.0), replace(ONE, **errors, gain=-0.05, gain_half=0.01), method="Bad"
    )
    lines = [SEARCH, replace(SEARCH, **errors), *bad, *good]
    best = recommend(lines, 60_000, 20_000, 3.0)
    assert best.way.method == "Good"
    assert best.least_gain == pytest.approx(0.7)  # of the accuracy, in its margin of 1
    for line in bad:
        assert line in lines


def test_a_gain_of_nothing_is_not_the_search_itself(monkeypatch) -> None:
    even = replace(ONE, gain=0.0, gain_half=0.4)
    assert recommend([SEARCH, even], 60_000, 20_000, 3.0).way == SEARCH
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (even,))
    asked = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]
    assert "gain +0.00 [-0.40, 0.40]" in CliRunner().invoke(app, asked).output


RATE = PoissonSampling(512 / 60_000)
STOPPED = {
    shape: Search(RATE, 1172, 5, RANDOM_STOPPING, number).noise_multiplier(3, 1e-5)
    for shape, number in SHAPES.items()
}


@pytest.mark.parametrize(
    ("way", "noise"),
    [
        (
            {"selection": "composition", "runs": 5},
            {"5 runs": Search(RATE, 1172, 5).noise_multiplier(3, 1e-5)},
        ),
        *(
            (
                {"selection": "random_stopping", "runs": 5, "distribution": shape},
                {"5 runs in the mean": noise},
            )
            for shape, noise in STOPPED.items()
        ),
        (
            {"selection": "linear_scaling", "runs": 11, "trial_shares": "0.1, 0.2"},
            dict(
                zip(
                    ("trial 1", "trial 2", "final"),
                    ScaledSearch(RATE, 1172, 5).noise_multipliers(3, 1e-5),
                    strict=True,
                )
            ),
        ),
    ],
)
def test_the_noise_is_that_of_the_way_that_is_recommended(monkeypatch, way, noise) -> None:
    lines = (replace(ONE, **way),)
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: lines)
    asked = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]
    said = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert said["noise_multipliers"] == {part: pytest.approx(nu) for part, nu in noise.items()}


ASKED = PoissonSampling(1000 / 50_000), 100  # a run of 2 epochs


@pytest.mark.parametrize("delta", [1e-7, 1e-3])
@pytest.mark.parametrize(
    ("way", "noise_of"),
    [
        (
            {"selection": "composition", "runs": 4},
            lambda delta: [Search(*ASKED, 4).noise_multiplier(3, delta)],
        ),
        (
            {"selection": "default", "runs": 1},
            lambda delta: [Search(*ASKED, 1).noise_multiplier(3, delta)],
        ),
        (
            {"selection": "random_stopping", "runs": 4, "distribution": "geometric"},
            lambda delta: [Search(*ASKED, 4, RANDOM_STOPPING, 1.0).noise_multiplier(3, delta)],
        ),
        (
            {"selection": "linear_scaling", "runs": 9, "trial_shares": "0.1, 0.2"},
            lambda delta: ScaledSearch(*ASKED, 4).noise_multipliers(3, delta),
        ),
        (
            {"selection": "linear_scaling", "runs": 16, "trial_shares": "0.05, 0.1, 0.3"},
            lambda delta: ScaledSearch(*ASKED, 5, (0.05, 0.1, 0.3)).noise_multipliers(3, delta),
        ),
    ],
)
def test_the_noise_is_for_what_was_asked(monkeypatch, way, noise_of, delta: float) -> None:
    """Not that of the runs which the advice rests on: of this batch size, length and delta."""
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (replace(ONE, **way),))
    size = ["--examples", "50000", "--batch-size", "1000", "--epochs", "2", "--delta", str(delta)]
    asked = ["recommend", *size, "--epsilon", "3", "--model-size", "20000"]
    said = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert [*said["noise_multipliers"].values()] == pytest.approx(noise_of(delta))
    text = CliRunner().invoke(app, asked).output
    assert all(noise_text(nu) in text for nu in noise_of(delta))
    assert f"runs of 100 steps, epsilon 3 at delta {delta:g}" in text


@pytest.mark.parametrize("margin", [0.4, 1.3])
def test_what_is_gained_at_least_is_told_in_margins(margin: float) -> None:
    """The whole of it: an interval in another unit would rank the ways otherwise."""
    lines = [replace(SEARCH, margin=margin), replace(ONE, margin=margin)]
    best = recommend(lines, 60_000, 20_000, 3.0)
    assert best.least_gain == pytest.approx((1.0 - 0.3) / margin)


LETTERS = {"dataset": "Letters", "examples": 100_000}


@pytest.mark.parametrize(("epsilon", "nearest"), [(4.0, (3.0, 4.0)), (6.0, (9.0, 4.0))])
def test_of_each_data_set_its_own_nearest_budget_counts(epsilon, nearest) -> None:
    """They need not be the same: one that has none so near would be left out."""
    lines = [replace(one, epsilon=e) for one in (SEARCH, ONE) for e in (3.0, 9.0)]
    lines += [replace(one, epsilon=e, **LETTERS) for one in (SEARCH, ONE) for e in (2.0, 4.0, 20.0)]
    best = recommend(lines, 80_000, 20_000, epsilon)
    assert [(one.dataset, one.epsilon) for one in best.rests_on] == [
        *(("Digits", nearest[0]), ("Letters", nearest[1]))
    ]


@pytest.mark.parametrize(("epsilon", "known"), [(5.0, ["Digits"]), (1.5, ["Letters"])])
def test_a_data_set_counts_between_its_own_budgets_alone(epsilon, known) -> None:
    lines = [replace(one, epsilon=e) for one in (SEARCH, ONE) for e in (3.0, 9.0)]
    lines += [replace(one, epsilon=e, **LETTERS) for one in (SEARCH, ONE) for e in (1.0, 2.0)]
    best = recommend(lines, 80_000, 20_000, epsilon)
    assert [one.dataset for one in best.rests_on] == known


@pytest.mark.parametrize(("std", "half", "seeds"), [(0.2, 0.3, 3), (1.75, 0.04, 5)])
def test_a_line_of_evidence_has_its_deviation_its_seeds_and_its_interval(
    std, half, seeds, monkeypatch
) -> None:
    one = replace(ONE, std=std, gain_half=half, seeds=seeds)
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (one,))
    asked = ["recommend", "--examples", "60000", "--epsilon", "3", "--model-size", "20000"]
    said = CliRunner().invoke(app, asked).output
    assert f"accuracy 91.00 ± {std:.2f} ({seeds} seeds)" in said
    assert f"gain +1.00 [{1 - half:.2f}, {1 + half:.2f}]" in said


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_data_set_like_theirs_with_too_few_seeds_is_not_left_out(seeds: int) -> None:
    """Of it nobody knows whether the way does as well there."""
    lines = [SEARCH, ONE, *others(SEARCH, ONE, dataset="Letters", seeds=seeds)]
    with pytest.raises(OsoError, match=r"no way to spend epsilon 3 .* on Digits, Letters"):
        recommend(lines, 60_000, 20_000, 3.0)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({}, "Free"),
        ({"laid": "rate falling"}, "Free, rate falling"),
        ({"selection": "random_stopping", "distribution": "poisson", "runs": 5}, "Free, K poisson"),
    ],
)
@pytest.mark.parametrize("start", ["", "learning_rate = 1"])
def test_a_program_is_told_what_a_person_is(monkeypatch, words, name: str, start: str) -> None:
    """The whole name of the way, how many runs it pays for and from where it starts."""
    line = replace(ONE, **words, start=start)
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (line,))
    said = json.loads(CliRunner().invoke(app, [*ASKED_FOR, "--json"]).output)
    assert (said["method"], said["way"], said["start"]) == (name, line.way, start)
    assert said["runs"] == line.runs
    from_where = f", from {start}" if start else ""
    assert CliRunner().invoke(app, ASKED_FOR).output.startswith(f"{name}: {line.way}{from_where}\n")


@pytest.mark.parametrize(("shares", "runs"), [("0.1", 10), ("0.1, 0.2", 9), ("0.1, 0.2, 0.3", 13)])
def test_the_runs_of_a_way_are_those_of_its_trials_and_the_last_one(
    monkeypatch, shares: str, runs: int
) -> None:
    asked = []

    class Scaled:
        parts = ("final",)

        def __init__(self, sampling, steps, trial, parts) -> None:
            asked.append(trial * len(parts) + 1)

        def noise_multipliers(self, epsilon: float, delta: float) -> list[float]:
            return [1.0]

    way = {"selection": "linear_scaling", "trial_shares": shares, "runs": runs}
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: (replace(ONE, **way),))
    monkeypatch.setattr("oso_dp.accounting.scaled_search.ScaledSearch", Scaled)
    said = json.loads(CliRunner().invoke(app, [*ASKED_FOR, "--json"]).output)
    assert (asked, said["runs"]) == ([runs], runs)


@pytest.mark.parametrize("seen", [(True, False), (False, True), (True, True), (False, False)])
def test_of_each_data_set_it_is_said_whether_the_default_was_chosen_there(
    monkeypatch, seen: tuple[bool, bool]
) -> None:
    lines = [
        replace(ONE, dataset=name, seen=by)
        for name, by in zip(("Digits", "Letters"), seen, strict=True)
    ]
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: tuple(lines))
    text = CliRunner().invoke(app, ASKED_FOR).output
    said = [line for line in text.splitlines() if "examples" in line]
    assert ["chosen by looking at these data" in line for line in said] == list(seen)
