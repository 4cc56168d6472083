"""`oso calibrate` and `oso epsilon` at a prompt; mistakes get one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oso_dp.accounting.formatting import format_noise_multiplier

MNIST = ("--delta", "1e-5", "--examples", 60000, "--batch-size", 512, "--epochs", 10)
NINE_STOPPED = ("--runs", 9, "--search-accounting", "random-stopping")


def test_the_noise_of_a_search(oso) -> None:
    status, output, _ = oso("calibrate", "--epsilon", 3, *MNIST, "--runs", 9)
    assert status == 0
    assert output.startswith("noise multiplier 1.49")
    assert "9 runs of 1172 steps" in output


def command_of(arguments) -> str:
    return "epsilon" if "--noise-multiplier" in arguments else "calibrate"


def price(oso, *arguments):
    status, output, error = oso(command_of(arguments), *arguments, "--json")
    assert status == 0, error
    return json.loads(output)


def test_json_has_the_promised_keys(oso) -> None:
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


def test_epsilon_of_a_noise_is_the_way_back(oso) -> None:
    nu = price(oso, "--epsilon", 3, *MNIST, "--runs", 9)["noise_multiplier"]
    found = price(oso, "--noise-multiplier", nu, *MNIST, "--runs", 9)
    assert found["epsilon"] == pytest.approx(3, rel=1e-5)
    tighter = price(oso, "--noise-multiplier", nu, *MNIST, "--runs", 9, "--accountant", "pld")
    assert 2.5 < tighter["epsilon"] < 2.9


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("geometric", 1.306), ("logarithmic", 1.147), ("poisson", 2.761), ("1", 1.306), ("0", 1.147)],
)
def test_random_stopping(oso, shape, expected) -> None:
    rule = ("--search-accounting", "random-stopping", "--stopping-distribution", shape)
    found = price(oso, "--epsilon", 3, *MNIST, "--runs", 81, *rule)
    assert found["noise_multiplier"] == pytest.approx(expected, abs=0.001)
    assert found["search_accounting"] == "random_stopping"


def test_the_split_of_proposition_1(oso) -> None:
    found = price(oso, "--epsilon", 3, *MNIST, "--runs", 9, "--show-noise-split")
    nu = found["noise_multiplier"]
    assert found["query_noise_multiplier"] == pytest.approx(7.124 * nu)
    assert found["gradient_noise_multiplier"] == pytest.approx(1.01 * nu, rel=1e-4)


def test_a_whole_study(oso, repo) -> None:
    demo = repo / "config/demo.yaml"
    found = price(oso, "--config", demo, "--show-noise-split")
    noise = {(e["method"], e["epsilon"]): e["noise_multiplier"] for e in found}
    assert noise["fixed_threshold", 3] > noise["fixed_quantile", 3] > noise["online", 3]
    split = {e["method"]: e["query_noise_multiplier"] for e in found}
    assert split["fixed_threshold"] is None
    assert split["fixed_quantile"] == pytest.approx(0.1 * 128)


def test_a_study_is_priced_by_its_own_selection_unless_another_is_given(oso, repo, tmp_path):
    study = tmp_path / "stopping.yaml"
    smoke = (repo / "config/ci/smoke.yaml").read_text().replace("[2]", "[9]")
    study.write_text(smoke + "search_accounting: random_stopping\n")
    (own,) = price(oso, "--config", study)
    assert (own["search_accounting"], own["shape"]) == ("random_stopping", 0)
    (given,) = price(oso, "--config", study, "--search-accounting", "composition")
    assert given["search_accounting"] == "composition"
    assert given["noise_multiplier"] > own["noise_multiplier"]
    (wider,) = price(oso, "--config", study, "--stopping-distribution", "geometric")
    assert wider["shape"] == 1
    assert wider["noise_multiplier"] > own["noise_multiplier"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--epsilon", 3), "--examples: missing"),
        (("--epsilon", 3, "--examples", 0), "--examples: 0; must be >= 1"),
        (("--epsilon", 3, "--examples", -5), "--examples: -5; must be >= 1"),
        (
            ("--epsilon", 3, "--examples", 100),
            "--batch-size: 512; must be 1 to 100, the number of examples",
        ),
        (
            ("--epsilon", 3, "--examples", 600, "--batch-size", 0),
            "--batch-size: 0; must be 1 to 600, the number of examples",
        ),
        (("--epsilon", 3, "--examples", 600, "--epochs", 0), "--epochs: 0; must be > 0 and <= 1e6"),
        (("--epsilon", 0, *MNIST), "epsilon: 0; must be > 0 and finite"),
        (("--epsilon", "nan", *MNIST), "epsilon: nan; must be > 0 and finite"),
        (
            ("--epsilon", 1e-9, *MNIST),
            "epsilon: 1e-09; no noise multiplier from 0.05 to 10000 meets",
        ),
        (("--epsilon", 3, *MNIST, "--runs", 0), "runs: 0; must be >= 1 and <= 1e+09"),
        (("--epsilon", 3, "--examples", 600, "--delta", 1), "delta: 1; must be > 0 and < 1"),
        (("--noise-multiplier", 0, *MNIST), "noise_multiplier: 0; must be >= 0.05 and <= 10000"),
        (("--epsilon", 3, *MNIST, "--accountant", "gdp"), "'gdp' is not one of 'rdp', 'pld'"),
        (
            ("--epsilon", 3, *MNIST, "--stopping-distribution", "flat"),
            "--stopping-distribution: flat; must be one of geometric",
        ),
        (
            ("--epsilon", 3, *MNIST, "--show-noise-split", "--query-noise-ratio", 1),
            "query_noise_multiplier: 0.837237; must be > the step's noise",
        ),
        (
            ("--epsilon", 3, *MNIST, *NINE_STOPPED, "--accountant", "pld"),
            "accountant: 'pld'; must be 'rdp' for random stopping",
        ),
        (
            ("--config", "config/demo.yaml", "--runs", 3),
            "--runs: set by --config config/demo.yaml; leave it out",
        ),
        (("--config", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_priced_is_said_in_one_line(oso, repo, monkeypatch, arguments, complaint):
    monkeypatch.chdir(repo)
    status, output, error = oso(command_of(arguments), *arguments)
    assert status == 2
    assert output == ""
    assert error.startswith("oso: error: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_a_price_by_rdp_loads_nothing_heavy() -> None:
    """Torch, Opacus and privacy-loss distributions would make the prompt wait for seconds."""
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


def test_the_answer_goes_to_a_pipe_whole(repo: Path) -> None:
    oso = Path(sys.executable).parent / "oso"
    command = [str(oso), "calibrate", "--config", str(repo / "config/ci/smoke.yaml")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "noise multiplier" in output
    assert "online" in output
    assert "…" not in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("calibrate",), "--epsilon: missing; must be set, or a study's --config"),
        (("epsilon", *MNIST), "--noise-multiplier: missing"),
        (("epsilon", "--noise-multiplier", 1), "--examples: missing"),
        (("calibrate", "--noise-multiplier", 1, *MNIST), "No such option: --noise-multiplier"),
        (("epsilon", "--epsilon", 1, *MNIST), "No such option: --epsilon"),
    ],
)
def test_each_name_asks_for_its_own(oso, arguments, complaint) -> None:
    status, output, error = oso(*arguments)
    assert (status, output) == (2, "")
    assert complaint in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("ratio", [2, 7.124])
def test_the_split_is_printed_as_it_is_in_json(oso, ratio) -> None:
    asked = (
        "--epsilon",
        3,
        *MNIST,
        "--runs",
        9,
        "--show-noise-split",
        "--query-noise-ratio",
        ratio,
    )
    found = price(oso, *asked)
    assert oso("calibrate", *asked)[1].splitlines()[-1] == (
        f"split between two queries (Proposition 1): gradient "
        f"{format_noise_multiplier(found['gradient_noise_multiplier'])}, second query "
        f"{format_noise_multiplier(found['query_noise_multiplier'])}"
    )


def test_a_studys_table_has_the_numbers_of_its_json(oso, repo) -> None:
    asked = ("--config", repo / "config/ci/smoke.yaml", "--show-noise-split")
    (entry,) = price(oso, *asked)
    head, _, row = oso("calibrate", *asked)[1].strip().splitlines()[:3]
    names = [name.strip() for name in re.split(r"\s{2,}", head.strip())]
    cells = dict(zip(names, row.split(), strict=True))
    for name, key in (
        ("runs", "runs"),
        ("steps", "steps"),
        ("noise multiplier", "noise_multiplier"),
        ("gradient", "gradient_noise_multiplier"),
        ("query", "query_noise_multiplier"),
    ):
        assert float(cells[name]) == pytest.approx(entry[key], rel=1e-4), name


@pytest.mark.parametrize(("epochs", "steps"), [(1, 118), (2, 235), (2.05, 241), (0.001, 1)])
def test_a_run_of_some_epochs_has_its_steps_rounded_up(oso, epochs, steps) -> None:
    """As a study's: 60,000 examples are 117.1875 batches of 512."""
    found = price(oso, "--epsilon", 3, *MNIST, "--epochs", epochs)
    assert found["steps"] == steps
    one_more = price(oso, "--epsilon", 3, *MNIST, "--epochs", epochs + 1)
    assert one_more["noise_multiplier"] > found["noise_multiplier"]


@pytest.mark.parametrize("shape", ["geometric", "0.5"])
def test_guesses_have_no_distribution_of_their_number(oso, repo, tmp_path, shape: str) -> None:
    study = tmp_path / "guesses.yaml"
    study.write_text((repo / "config/ci/smoke.yaml").read_text() + "search_accounting: single\n")
    status, output, error = oso("calibrate", "--config", study, "--stopping-distribution", shape)
    assert (status, output) == (2, "")
    assert error.startswith(
        "oso: error: --stopping-distribution: needs --search-accounting random-stopping, or a study"
    )
    (alone,) = price(oso, "--config", study)
    (searched,) = price(oso, "--config", study, "--search-accounting", "composition")
    assert (alone["runs"], searched["runs"]) == (1, 2)
    assert searched["noise_multiplier"] > 1.1 * alone["noise_multiplier"]
