"""A search by the linear scaling rule through every command, and its price at a prompt."""

import json
import re
import shutil

import pandas as pd
import pytest

from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.privacy.sampling import PoissonSampling

STUDY = """\
name: scaled
results: store
report: report
datasets:
  glyphs: {model: small_cnn, epsilons: [3], seconds_per_step: 0.01}
methods: {online: {}}
values_per_axis: [2]
seeds: [0]
batch_size: 600
epochs: 1
evaluate_every: 5
search_accounting: linear_scaling
"""
NAME = "glyphs.online.k2.eps3.linear_scaling"
MNIST = ("--examples", 60000, "--runs", 9)
SCALED = ("--search-accounting", "linear-scaling")


@pytest.fixture
def place(priced, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(priced / "glyphs.npz", tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def test_from_a_plan_to_a_report(place, oso) -> None:
    status, output, error = oso("plan", "--config", "study.yaml", "--output", "plan.json")
    assert status == 0, error
    assert "6 private runs in 3 cohorts" in output
    store = ("--store", "store", "--allow-missing-store")
    for part in ("trial_1", "trial_2", "final"):
        cohort = ("--cohort", f"{NAME}.{part}", "--data", "glyphs.npz")
        done = oso("train", "--plan", "plan.json", *cohort, "--output", part, *store)
        assert done[0] == 0, done[2]
        if part == "trial_2":  # the final run is charged before it is there
            assert oso("collect", "trial_1", "trial_2", "--store", "early")[0] == 0
            assert oso("account", "early", "--output", "early.csv")[0] == 0
            (row,) = pd.read_csv("early.csv").to_dict("records")
            assert (row["runs"], row["stored"], row["verdict"]) == (5, 4, "within")
            assert row["rdp"] == pytest.approx(3, rel=1e-4)
    assert oso("collect", "trial_1", "trial_2", "final", "--store", "store")[0] == 0
    files = sorted(path.name for path in (place / "store/runs.parquet").iterdir())
    assert [name.rpartition(".linear_scaling.")[2].split(".")[0] for name in files] == [
        *("final", "trial_1", "trial_2")
    ]

    status, output, error = oso("account", "store", "--plan", "plan.json", "--output", "all.csv")
    assert status == 0, error
    (row,) = pd.read_csv("all.csv").to_dict("records")
    assert (row["grid"], row["runs"], row["stored"], row["verdict"]) == (NAME, 5, 5, "within")
    assert row["rdp"] == pytest.approx(3, rel=1e-4)

    assert oso("summary", "store")[0] == 0
    status, _, error = oso("report", "store", "--output", "report", "--plan", "plan.json")
    assert status == 0, error
    (row,) = pd.read_csv(place / "report/tables/linear_scaling.csv").to_dict("records")
    assert (row["dataset"], row["method"], row["seeds"]) == ("glyphs", "online", 1)
    final = pd.read_parquet(place / "final/runs.parquet")
    assert 0 < row["mean"] < 100
    assert row["noise_multiplier"] == final["noise_multiplier"].iloc[0]
    page = (place / "report/index.html").read_text()
    assert '<h3 id="linear-scaling">' in page
    assert page.count("Search by the linear scaling rule") <= 2  # not among the tables left over
    accounts = (place / "report/tables/accounting.md").read_text()
    assert re.search(r"\| Online, linear scaling \| 2 \| 3 \|", accounts)


def test_the_noise_of_the_final_run_and_of_the_trials(oso) -> None:
    status, output, error = oso("calibrate", "--epsilon", 3, *MNIST, *SCALED)
    assert status == 0, error
    assert output.splitlines() == [
        "noise multiplier 0.8463 for one final run, after 2 trials of 9 runs, of 1172 steps at "
        "sampling rate 0.0085333: epsilon 3, delta 1e-05 (rdp)",
        "trial 1: noise multiplier 10.8245, epsilon 0.3",
        "trial 2: noise multiplier 5.7397, epsilon 0.6",
    ]


@pytest.mark.parametrize("shares", ["0.3,0.4", "0.3 0.4", "0.3, 0.4"])
def test_shares_are_numbers_with_a_comma_or_a_blank(oso, shares) -> None:
    size = ("--examples", 6000, "--epochs", 1, "--runs", 2, *SCALED)
    status, output, _ = oso(
        "calibrate", "--epsilon", 3, *size, "--trial-fractions", shares, "--json"
    )
    assert status == 0
    found = json.loads(output)
    assert found["trial_fractions"] == [0.3, 0.4]
    assert (found["search_accounting"], found["runs"], found["steps"]) == ("linear_scaling", 2, 12)
    assert [trial["epsilon"] for trial in found["trials"]] == pytest.approx([0.9, 1.2])
    noise = str(found["noise_multiplier"])
    back = oso("epsilon", "--noise-multiplier", noise, *size, "--trial-fractions", shares, "--json")
    assert json.loads(back[1])["epsilon"] == pytest.approx(3, rel=1e-6)


def test_a_study_is_priced_part_by_part(place, oso) -> None:
    status, output, _ = oso("calibrate", "--config", "study.yaml", "--json")
    assert status == 0
    parts = json.loads(output)
    assert [(one["part"], one["runs"]) for one in parts] == [
        *(("trial 1", 2), ("trial 2", 2), ("final", 1))
    ]
    assert "trial 2" in oso("calibrate", "--config", "study.yaml")[1]
    (composed,) = json.loads(
        oso("calibrate", "--config", "study.yaml", "--search-accounting", "composition", "--json")[
            1
        ]
    )
    assert composed["runs"] == 2
    assert parts[2]["noise_multiplier"] < composed["noise_multiplier"]
    assert "part" not in composed
    dearer = ("--trial-fractions", "0.3,0.4", "--json")
    others = json.loads(oso("calibrate", "--config", "study.yaml", *dearer)[1])
    assert others[2]["noise_multiplier"] > parts[2]["noise_multiplier"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            (*MNIST, "--trial-fractions", "0.1,0.2"),
            "--trial-fractions: 0.1,0.2; needs --search-accounting linear",
        ),
        (
            (*MNIST, *SCALED, "--trial-fractions", "0.1"),
            "--trial-fractions: 0.1; must be two numbers or more: a line",
        ),
        (
            (*MNIST, *SCALED, "--trial-fractions", ""),
            "--trial-fractions: ; must be two numbers or more: a line",
        ),
        (
            (*MNIST, *SCALED, "--trial-fractions", "0.1,x"),
            "--trial-fractions: 0.1,x; must be numbers, such as 0.1,0.2",
        ),
        (
            (*MNIST, *SCALED, "--trial-fractions", "0.1,nan"),
            "--trial-fractions: 0.1,nan; each must be a number > 0 and <",
        ),
        (
            (*MNIST, *SCALED, "--trial-fractions", "0.5,0.6"),
            "--trial-fractions: 0.5,0.6; their sum must be < 1: the rest",
        ),
        (
            (*MNIST, *SCALED, "--stopping-distribution", "poisson"),
            "--stopping-distribution: poisson; needs --search-accounting",
        ),
        (
            (*MNIST, "--search-accounting", "linear"),
            "--search-accounting: linear; must be one of composition, random",
        ),
    ],
)
def test_what_cannot_be_priced_is_said_in_one_line(oso, arguments, complaint) -> None:
    status, output, error = oso("calibrate", "--epsilon", 3, *arguments)
    assert (status, output) == (2, "")
    assert error.startswith("oso: error: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_shares_are_of_a_study_of_that_selection_only(place, oso) -> None:
    shares = ("--trial-fractions", "0.1,0.2")
    other = ("--search-accounting", "composition")
    status, _, error = oso("calibrate", "--config", "study.yaml", *other, *shares)
    assert status == 2
    assert "--trial-fractions: needs --search-accounting linear-scaling, or a study" in error
    status, _, error = oso(
        "calibrate", "--config", "study.yaml", "--stopping-distribution", "poisson"
    )
    assert status == 2
    assert "--stopping-distribution: needs --search-accounting random-stopping" in error


@pytest.mark.parametrize(("delta", "accountant"), [(1e-8, "rdp"), (1e-3, "rdp"), (1e-5, "pld")])
def test_trials_and_final_run_are_priced_alike(delta, accountant, oso) -> None:
    """At the delta, and by the accountant, that are asked for."""
    asked = ("--epsilon", 3, "--delta", delta, "--accountant", accountant, "--json")
    small = ("--examples", 6000, "--batch-size", 600, "--epochs", 1, "--runs", 2)
    status, output, error = oso("calibrate", *small, *SCALED, *asked)
    assert status == 0, error
    said = json.loads(output)
    whole = LinearScalingSearch(PoissonSampling(0.1), 10, 2, (0.1, 0.2))
    *trials, final = whole.noise_multipliers(3.0, delta, accountant)
    (entry,) = said if isinstance(said, list) else [said]
    assert [one["noise_multiplier"] for one in entry["trials"]] == pytest.approx(trials, rel=1e-4)
    assert entry["noise_multiplier"] == pytest.approx(final, rel=1e-4)
