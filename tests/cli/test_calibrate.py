"""`oso calibrate` and `oso epsilon`: each option counts, and what is printed is the answer."""

import json
import math
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from tests.searches import make_search

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.cli import calibrate as calibrate_module
from oso_dp.cli import calibration_options
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import load_config

MNIST = ("--delta", "1e-5", "--examples", 60000, "--batch-size", 512, "--epochs", 10)


def command_of(arguments) -> str:
    return "epsilon" if "--noise-multiplier" in arguments else "calibrate"


def price(oso, *arguments):
    status, output, error = oso(command_of(arguments), *arguments, "--json")
    assert status == 0, error
    return json.loads(output)


def test_calibrate_json_has_documented_keys(oso) -> None:
    found = price(oso, "--epsilon", 3, *MNIST, "--runs", 81)
    assert found.pop("noise_multiplier") == pytest.approx(3.994, abs=0.001)
    assert found == {
        "epsilon": 3.0,
        "delta": 1e-5,
        "runs": 81,
        "steps": 1172,
        "sampling_rate": 512 / 60000,
        "accountant": "rdp",
        "search_accounting": "composition",
    }


def test_calibrate_rdp_skips_heavy_imports() -> None:
    code = (
        "import sys; sys.argv = ['oso', 'calibrate', '--epsilon', '3', '--examples', '60000'];"
        "from oso_dp.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'opacus', 'pandas', 'scipy.signal', 'dp_accounting.pld'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import dp_accounting\n"  # whole, whoever asks for it afterwards
        "assert dp_accounting.calibrate_dp_mechanism and dp_accounting.pld.PLDAccountant"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


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
SIZE = ("--examples", 60000, "--runs", 9)
SCALED = ("--search-accounting", "linear-scaling")


@pytest.fixture
def place(priced, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(priced / "glyphs.npz", tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def test_linear_scaling_plan_to_report_succeeds(place, oso) -> None:
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


def test_calibrate_linear_scaling_prints_trials(oso) -> None:
    status, output, error = oso("calibrate", "--epsilon", 3, *SIZE, *SCALED)
    assert status == 0, error
    assert output.splitlines() == [
        "noise multiplier 0.8463 for one final run, after 2 trials of 9 runs, of 1172 steps at "
        "sampling rate 0.0085333: epsilon 3, delta 1e-05 (rdp)",
        "trial 1: noise multiplier 10.8245, epsilon 0.3",
        "trial 2: noise multiplier 5.7397, epsilon 0.6",
    ]


@pytest.mark.parametrize(("delta", "accountant"), [(1e-8, "rdp"), (1e-3, "pld")])
def test_calibrate_linear_scaling_matches_search(delta, accountant, oso) -> None:
    asked = ("--epsilon", 3, "--delta", delta, "--accountant", accountant, "--json")
    small = ("--examples", 6000, "--batch-size", 6000, "--epochs", 3, "--runs", 2)
    status, output, error = oso("calibrate", *small, *SCALED, *asked)
    assert status == 0, error
    said = json.loads(output)
    whole = LinearScalingSearch(PoissonSampling(1.0), 3, 2, (0.1, 0.2))
    *trials, final = whole.noise_multipliers(3.0, delta, accountant)
    (entry,) = said if isinstance(said, list) else [said]
    assert [one["noise_multiplier"] for one in entry["trials"]] == pytest.approx(trials, rel=1e-4)
    assert entry["noise_multiplier"] == pytest.approx(final, rel=1e-4)


COMMANDS = {"epsilon": "--noise-multiplier=1.7", "calibrate": "--epsilon=1.7"}


# None of them is what the commands take unless they are told.
USUAL = {"delta": 3e-7, "examples": 5000, "batch_size": 250, "epochs": 2.5, "runs": 7}
OTHERS = [
    {},
    *({name: value} for name, value in zip(USUAL, (1e-6, 6000, 500, 4.0, 3), strict=True)),
    {"accountant": "pld"},
    {"search_accounting": "random-stopping"},
    {"search_accounting": "random-stopping", "stopping_distribution": "geometric"},
]


def options(facts: dict) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in facts.items()]


def search_of(facts: dict) -> Search:
    """Of the options, by the definitions of q and T, not by the command's code."""
    steps = math.ceil(facts["epochs"] * facts["examples"] / facts["batch_size"])
    sampling = PoissonSampling(facts["batch_size"] / facts["examples"])
    rule = facts.get("search_accounting", "composition").replace("-", "_")
    shape = STOPPING_ETA[
        facts.get("stopping_distribution", "logarithmic")
    ]  # which composition does not look at
    return make_search(sampling, steps, facts["runs"], rule, shape)


@pytest.fixture
def asked(monkeypatch) -> list[tuple]:
    """What the accountants are asked, who answer at once: 1.234."""
    asks = []

    def answer(search: Search, *known: object) -> float:
        asks.append((search, *known))
        return 1.234

    monkeypatch.setattr(Search, "epsilon", answer)
    monkeypatch.setattr(Search, "noise_multiplier", answer)
    return asks


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_calibrate_epsilon_options_reach_search(oso, asked, command, other) -> None:
    facts = USUAL | other
    status, said, error = oso(command, COMMANDS[command], *options(facts), "--json")
    assert status == 0, error
    accountant, search = facts.get("accountant", "rdp"), search_of(facts)
    assert asked == [(search, 1.7, facts["delta"], accountant)]
    nu, epsilon = (1.7, 1.234) if command == "epsilon" else (1.234, 1.7)
    found = json.loads(said)
    assert (found["noise_multiplier"], found["epsilon"]) == (nu, epsilon)
    known = (found["delta"], found["runs"], found["steps"], found["sampling_rate"])
    assert known == (facts["delta"], search.runs, search.steps, search.sampling.rate)
    rule = facts.get("search_accounting", "composition").replace("-", "_")
    assert (found["accountant"], found["search_accounting"]) == (accountant, rule)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("ratio", [2.0, 30.0])
def test_calibrate_epsilon_query_noise_ratio_applied(oso, asked, command, ratio) -> None:
    call = (command, COMMANDS[command], *options(USUAL), "--show-noise-split", "--json")
    found = json.loads(oso(*call, "--query-noise-ratio", ratio)[1])
    assert found["query_noise_multiplier"] == pytest.approx(ratio * found["noise_multiplier"])
    usual = json.loads(oso(*call)[1])
    assert usual["query_noise_multiplier"] == pytest.approx(7.124 * usual["noise_multiplier"])
    assert len(asked) == 2


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"search_accounting": "random_stopping"},
        {
            "search_accounting": "linear_scaling",
            "trials": [
                {"epsilon": 0.123, "noise_multiplier": 9.75},
                {"epsilon": 0.246, "noise_multiplier": 5.25},
            ],
        },
    ],
    ids=["composition", "stopping", "scaled"],
)
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_print_answer_sentence_equals_json_numbers(capsys, more, accountant: str) -> None:
    entry = {"noise_multiplier": 1.75, "epsilon": 1.23, "delta": 3e-7, "runs": 7, "steps": 50}
    entry |= {
        "sampling_rate": 0.05125,
        "accountant": accountant,
        "search_accounting": "composition",
    }
    entry |= more
    calibration_options.print_answer(dict(entry), None, as_json=False)
    first, *trials = capsys.readouterr().out.splitlines()
    runs = [2.0, 7.0] if "trials" in more else [7.0]
    assert numbers(first) == [1.75, *runs, 50, 0.05125, 1.23, 3e-7]
    assert first.endswith(f"({accountant})")
    assert [numbers(line) for line in trials] == [
        [place + 1, trial["noise_multiplier"], trial["epsilon"]]
        for place, trial in enumerate(more.get("trials", []))
    ]


def test_print_answer_epsilon_noise_rounded_up(capsys) -> None:
    trials = [{"epsilon": 0.12301, "noise_multiplier": 9.75001}]
    entry = {"noise_multiplier": 1.75001, "epsilon": 1.23401, "delta": 1.4e-5, "runs": 7}
    entry |= {"steps": 50, "sampling_rate": 512 / 60_000_000, "accountant": "rdp"}
    entry |= {"search_accounting": "linear_scaling", "trials": trials}
    calibration_options.print_answer(dict(entry), 7.0, as_json=False)
    first, trial, split = capsys.readouterr().out.splitlines()
    for part in ("noise multiplier 1.7501 for", "epsilon 1.235,", "delta 1.4e-05", "8.5333e-06"):
        assert part in first
    assert trial == "trial 1: noise multiplier 9.7501, epsilon 0.1231"
    assert split.endswith("second query 12.2501")  # 12.25007


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def test_print_study_rows_equal_grids(capsys) -> None:
    entries = [
        {
            "dataset": f"data{n}",
            "method": f"method{n}",
            "k": n,
            "epsilon": 1.3 * n,
            "delta": 3e-7,
            "runs": 10 * n,
            "steps": 100 * n,
            "sampling_rate": 0.0125 * n,
            "noise_multiplier": 1.5 * n + 0.25,
            "accountant": "pld",
            "search_accounting": "composition",
        }
        for n in (1, 2, 3)
    ]
    calibrate_module._print_study(entries)
    head, _, *rows, last = capsys.readouterr().out.strip().splitlines()
    titles = [title.strip().replace(" ", "_") for title in re.split(r"\s{2,}", head.strip())]
    keys = ["dataset" if title == "data_set" else title for title in titles]
    shown = [dict(zip(keys, line.split(), strict=True)) for line in rows if line.strip()]
    assert [row.pop("noise_multiplier") for row in shown] == ["1.7500", "3.2500", "4.7500"]
    keys.remove("noise_multiplier")
    assert shown == [{key: _text(entry[key]) for key in keys} for entry in entries]
    assert {"dataset", "method", "k", "epsilon", "runs"} <= {*keys}
    assert last == "delta 3e-07, pld, composition"


def test_calibrate_study_options_reach_grids(oso, repo, monkeypatch) -> None:
    asked = []

    def grids(study, *facts):
        asked.append(facts)
        return []

    monkeypatch.setattr("oso_dp.study.calibration.calibrate_grids", grids)
    config = ("calibrate", "--config", repo / "config/ci/smoke.yaml", "--json")
    for more, expected in (
        ((), ("rdp", None, None, None)),
        (("--accountant", "pld"), ("pld", None, None, None)),
        (("--search-accounting", "composition"), ("rdp", "composition", None, None)),
        (
            ("--search-accounting", "random-stopping", "--stopping-distribution", "geometric"),
            ("rdp", "random_stopping", 1.0, None),
        ),
        (
            ("--search-accounting", "linear-scaling", "--trial-fractions", "0.2,0.3"),
            ("rdp", "linear_scaling", None, (0.2, 0.3)),
        ),
    ):
        assert oso(*config, *more)[0] == 0
        assert asked.pop() == expected


def test_calibrate_study_entries_equal_grids(repo, monkeypatch) -> None:
    study = load_config(repo / "config/ci/smoke.yaml")
    search = Search(PoissonSampling(0.1), 20, 7)

    def grid(n: int, stage: str | None):
        cohort = SimpleNamespace(dataset="d", method=f"m{n}", k=n, stage=stage, examples=99)
        cohort.epsilon, cohort.delta = float(n), n * 1e-7
        return SimpleNamespace(cohort=cohort, search=search, noise_multiplier=n + 0.5)

    made = [grid(1, None), grid(2, "trial 1"), grid(3, "final")]
    monkeypatch.setattr("oso_dp.study.calibration.calibrate_grids", lambda *_: made)
    monkeypatch.setattr("oso_dp.study.config.load_config", lambda _: study)
    found = calibrate_module._calibrate_study(None, "rdp", None, None, None, False)
    keys = ("method", "k", "epsilon", "delta", "noise_multiplier", "runs")
    assert [tuple(entry[key] for key in keys) for entry in found] == [
        (f"m{n}", n, float(n), n * 1e-7, n + 0.5, 1 if n == 3 else 7) for n in (1, 2, 3)
    ]
    assert [entry.get("stage") for entry in found] == [None, "trial 1", "final"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("delta", [1.9e-4, 2.1e-4])
@pytest.mark.parametrize("how", [[], ["--json"]], ids=["words", "json"])
def test_calibrate_epsilon_large_delta_warns(oso, asked, command, delta, how) -> None:
    call = (command, COMMANDS[command], *options(USUAL | {"delta": delta}), *how)
    _, answer, beside = oso(*call)
    assert ("1 / 5000:" in beside) == (delta > 1 / 5000)
    assert "Delta" not in answer
    assert not how or json.loads(answer)["delta"] == delta
