"""Each option of `oso calibrate` and `oso epsilon` counts, and what is printed is the answer."""

import json
import math
import re
from types import SimpleNamespace

import pytest

from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.cli import calibrate as calibrate_module
from oso_dp.cli import calibration_options
from oso_dp.data.catalogue import DATASETS
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import load_config

COMMANDS = {"epsilon": "--noise-multiplier=1.7", "calibrate": "--epsilon=1.7"}
# None of them is what the commands take unless they are told.
USUAL = {"delta": 3e-7, "examples": 5000, "batch_size": 250, "epochs": 2.5, "runs": 7}
OTHERS = [
    {},
    *({name: value} for name, value in zip(USUAL, (1e-6, 6000, 500, 4.0, 3), strict=True)),
    {"accountant": "pld"},
    {"search_accounting": "random-stopping"},
    {"search_accounting": "random-stopping", "stopping_distribution": "geometric"},
    {"search_accounting": "random-stopping", "stopping_distribution": "poisson"},
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
    return Search(sampling, steps, facts["runs"], rule, shape)


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
def test_the_search_that_is_named_is_asked_about(oso, asked, command, other) -> None:
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
    assert (found["accountant"], found["search_accounting"]) == (
        accountant,
        search.search_accounting,
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("ratio", [2.0, 30.0])
def test_the_ratio_of_a_split_is_the_one_that_is_asked_for(oso, asked, command, ratio) -> None:
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
def test_a_sentence_has_the_numbers_of_its_json(capsys, more, accountant: str) -> None:
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


def test_a_sentence_says_no_promise_smaller_and_no_noise_less(capsys) -> None:
    """Rounded up all; of sampling rates as many digits as tell them, however small they are."""
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


def test_a_studys_table_has_each_grid_in_its_own_line(capsys) -> None:
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


def test_a_studys_table_rounds_all_noise_up(capsys) -> None:
    noise = dict.fromkeys(("noise_multiplier", *calibration_options.SPLIT), 1.50001)
    entry = {"dataset": "x", "method": "y", "k": 1, "epsilon": 3.0, "delta": 1e-5, "runs": 9}
    entry |= {"steps": 5, "sampling_rate": 0.5, **noise, "accountant": "rdp"}
    calibrate_module._print_study([entry | {"search_accounting": "composition"}])
    assert capsys.readouterr().out.count(" 1.5001") == 3


@pytest.mark.parametrize("order", [1, -1])
def test_each_data_set_of_a_study_whose_delta_is_too_large_is_named(
    oso, asked, repo, tmp_path, order: int
) -> None:
    """Not the first alone: here the smaller one, before or behind it."""
    sections = {
        "mnist": "{model: cnn, epsilons: [3], seconds_per_step: 0.1}",
        "glyphs": "{model: small_cnn, epsilons: [3], seconds_per_step: 0.1}",
    }
    lines = ["name: x", "results: r", "report: p", "methods: {online: {}}", "values_per_axis: [2]"]
    lines += ["seeds: [0]", "delta: 0.00005", "datasets:"]
    lines += [f"  {name}: {sections[name]}" for name in [*sections][::order]]
    for delta, named in (("0.00005", ["mnist"]), ("0.0005", ["mnist", "glyphs"])):
        text = "\n".join(lines).replace("0.00005", delta)
        (tmp_path / "study.yaml").write_text(text)
        status, _, beside = oso("calibrate", "--config", tmp_path / "study.yaml")
        assert status == 0, beside
        said = re.findall(r"^oso: (\w+): Delta is not below", beside, re.MULTILINE)
        assert sorted(said) == sorted(named)


def test_a_studys_grids_are_asked_about_as_the_options_say(oso, repo, monkeypatch) -> None:
    """By the accountant, the way, the shape and the shares that are given."""
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


def test_a_studys_entry_is_its_grids(repo, monkeypatch) -> None:
    """Each with its own noise, epsilon and delta; and of a final run one."""
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
    assert [entry.get("part") for entry in found] == [None, "trial 1", "final"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("delta", [1.9e-4, 2.1e-4])
@pytest.mark.parametrize("how", [[], ["--json"]], ids=["words", "json"])
def test_a_delta_that_promises_nothing_is_said_to(oso, asked, command, delta, how) -> None:
    """Beside the answer, which stays what it is for whatever program reads it."""
    call = (command, COMMANDS[command], *options(USUAL | {"delta": delta}), *how)
    _, answer, beside = oso(*call)
    assert ("1 / 5000:" in beside) == (delta > 1 / 5000)
    assert "Delta" not in answer
    assert not how or json.loads(answer)["delta"] == delta


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_of_a_studys_data_sets_those_are_named_whose_delta_is_too_large(
    oso, asked, repo, tmp_path, share: float
) -> None:
    examples = DATASETS["glyphs"].examples
    delta = f"delta: {share / examples:.9f}"
    (tmp_path / "study.yaml").write_text((repo / "config/ci/smoke.yaml").read_text() + delta)
    status, _, beside = oso("calibrate", "--config", tmp_path / "study.yaml")
    assert status == 0, beside
    assert beside.startswith(f"oso: glyphs: Delta is not below 1 / {examples}:") == (share > 1)
    assert beside or share < 1
