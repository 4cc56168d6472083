"""Options that cannot be, or that nobody would look at: one line names the option."""

import pytest

from .conftest import COHORT, content, refused

SEARCH = ["--examples", 6000]
CALIBRATE = ["calibrate", "--epsilon", 3, *SEARCH]
EPSILON = ["epsilon", "--noise-multiplier", 1, *SEARCH]
TRAIN = ["train", "--plan", "plan.json", "--data", "none.npz", "--output", "new"]
CASES = [
    # Not looked at.
    (
        [*CALIBRATE, "--query-noise-ratio", 3],
        "--query-noise-ratio: 3; needs --show-noise-split; set both",
    ),
    (
        [*EPSILON, "--query-noise-ratio", 3],
        "--query-noise-ratio: 3; needs --show-noise-split; set both",
    ),
    (["calibrate", "--config", "study.yaml", "--query-noise-ratio", 3], "--query-noise-ratio:"),
    (
        [*CALIBRATE, "--stopping-distribution", "geometric"],
        "--stopping-distribution: geometric; needs",
    ),
    (
        [*EPSILON, "--stopping-distribution", "poisson"],
        "--stopping-distribution: poisson; needs --search-accounting",
    ),
    (
        [*CALIBRATE, "--search-accounting", "composition", "--stopping-distribution", 1],
        "--stopping-distribution: 1; needs --search-accounting",
    ),
    (
        ["calibrate", "--config", "study.yaml", "--stopping-distribution", "poisson"],
        "--stopping-distribution: needs --search-accounting",
    ),
    (
        ["calibrate", "--config", "study.yaml", "--epsilon", 3],
        "--epsilon: set by --config study.yaml; leave it out",
    ),
    (
        ["calibrate", "--config", "study.yaml", "--runs", 3],
        "--runs: set by --config study.yaml; leave it out",
    ),
    (
        ["calibrate", "--config", "study.yaml", "--delta", 0.1],
        "--delta: set by --config study.yaml; leave it out",
    ),
    (
        ["plan", "--config", "study.yaml", "--search-noise-csv", "p.csv"],
        "--search-noise-csv: needs --output",
    ),
    (
        ["data", "ag_news", "--words", 0, "--output", "x.npz"],
        "words: 0; must be one of 15, 25 for ag_news",
    ),
    (
        ["data", "ag_news", "--words", -1, "--output", "x.npz"],
        "words: -1; must be one of 15, 25 for ag_news",
    ),
    (
        ["data", "ag_news", "--oov-words", "", "--output", "x.npz"],
        "oov_words: ''; must be one of zeros, skipped for ag_news",
    ),
    (
        ["data", "glyphs", "--words", 0, "--output", "x.npz"],
        "'glyphs': words, oov_words and vocabulary are for text only",
    ),
    (
        ["data", "glyphs", "--words", 15, "--output", "x.npz"],
        "'glyphs': words, oov_words and vocabulary are for text only",
    ),
    (["data", "runes", "--output", "x.npz"], "data set 'runes': "),
    # Missing.
    (["calibrate", *SEARCH], "--epsilon: missing"),
    (["calibrate", "--epsilon", 3], "--examples: missing"),
    (["epsilon", *SEARCH], "--noise-multiplier: missing"),
    (["plan"], "--config"),
    (["collect", "part"], "--store"),
    (["train"], "--plan"),
    (["account"], "results/runs.parquet: no such results"),
    (["collect", ".", "--store", "new"], ".: not a shard but a folder of 2; name each, as part"),
    (
        ["account", "part", "--results", "store"],
        "--results: store; differs from the argument part; set only",
    ),
    (["epsilon", "--runs", "abc"], "--runs': abc: must be an integer"),
    (["train", "--shard", "1.5"], "--shard': 1.5: must be an integer"),
    (
        ["calibrate", "--search-accounting", "random"],
        "--search-accounting: random; must be one of composition, rand",
    ),
    # Out of range.
    ([*CALIBRATE[:2], 0, *SEARCH], "epsilon: 0; must be > 0 and finite"),
    ([*CALIBRATE[:2], -1, *SEARCH], "epsilon: -1; must be > 0 and finite"),
    ([*CALIBRATE[:2], "nan", *SEARCH], "epsilon: nan; must be > 0 and finite"),
    ([*CALIBRATE[:2], "inf", *SEARCH], "epsilon: inf; must be > 0 and finite"),
    ([*CALIBRATE, "--delta", 1], "delta: 1; must be > 0 and < 1"),
    ([*CALIBRATE, "--delta", 0], "delta: 0; must be > 0 and < 1"),
    ([*CALIBRATE, "--delta", "nan"], "delta: nan; must be > 0 and < 1"),
    ([*CALIBRATE, "--batch-size", 0], "--batch-size: 0; must be 1 to 6000, the number of examples"),
    ([*CALIBRATE, "--batch-size", 6001], "--batch-size: 6001; must be 1 to 6000, the number of"),
    ([*CALIBRATE, "--epochs", 0], "--epochs: 0; must be > 0 and <= 1e6"),
    ([*CALIBRATE, "--epochs", "nan"], "--epochs: nan; must be > 0 and <= 1e6"),
    ([*CALIBRATE, "--runs", 0], "runs: 0; must be >= 1 and <= 1e+09"),
    ([*CALIBRATE, "--runs", -5], "runs: -5; must be >= 1 and <= 1e+09"),
    ([*CALIBRATE, "--examples", 0], "--examples: 0; must be >= 1"),
    ([*CALIBRATE, "--runs", "two"], "--runs': two: must be an integer"),
    ([*EPSILON, "--noise-multiplier", 0], "noise_multiplier: 0; must be >= 0.05 and <= 10000"),
    (
        [*EPSILON, "--noise-multiplier", "nan"],
        "noise_multiplier: nan; must be >= 0.05 and <= 10000",
    ),
    ([*EPSILON, "--accountant", "magic"], "'magic' is not one of"),
    (
        [*EPSILON, "--show-noise-split", "--query-noise-ratio", "inf"],
        "--query-noise-ratio: inf; must be finite",
    ),
    ([*EPSILON, "--show-noise-split", "--query-noise-ratio", 0.5], "must be"),
    (
        [*CALIBRATE, "--search-accounting", "random-stopping"],
        "runs: 1; must be > 1 (the mean) for search_accounting",
    ),
    (
        [
            *CALIBRATE,
            "--search-accounting",
            "random-stopping",
            "--runs",
            9,
            "--stopping-distribution",
            "round",
        ],
        "--stopping-distribution: round; must be one of",
    ),
    (
        [
            *CALIBRATE,
            "--search-accounting",
            "random-stopping",
            "--runs",
            9,
            "--stopping-distribution",
            -1,
        ],
        "stopping_eta: -1; must be >= 0",
    ),
    (
        [*CALIBRATE, "--search-accounting", "random-stopping", "--runs", 9, "--accountant", "pld"],
        "accountant: 'pld'; must be 'rdp' for random stopping",
    ),
    ([*TRAIN, "--cohort", "nobody"], "cohort: 'nobody'; not in the plan"),
    (
        [*TRAIN, "--cohort", COHORT, "--shard", 1],
        "--shard: 1; must be 0 to 0 for glyphs.online.k2.eps3",
    ),
    (
        [*TRAIN, "--cohort", COHORT, "--shard", -1],
        "--shard: -1; must be 0 to 0 for glyphs.online.k2.eps3",
    ),
    ([*TRAIN, "--cohort", COHORT, "--threads", 0], "--threads"),
    ([*TRAIN, "--cohort", COHORT], "none.npz"),
    # Files and folders that are not there, or are something else.
    (["account", "nothing"], "nothing/runs.parquet: no such results"),
    (["account", "study.yaml"], "study.yaml/runs.parquet: no such results"),
    (["account", "part", "--plan", "none.json"], "none.json: cannot be read"),
    (["account", "part", "--plan", "study.yaml"], "study.yaml: not a plan"),
    (["collect", "nothing", "--store", "store"], "nothing/runs.parquet: no such results"),
    (["collect", "part", "--store", "store", "--plan", "none.json"], "none.json: cannot be read"),
    (["summary", "--results", "nothing"], "nothing: no such results folder"),
    (["report", "--results", "nothing", "--output", "new"], "nothing: no such results folder"),
    (["report", "--results", "part", "--output", "new", "--plan", "study.yaml"], "study.yaml: "),
    (["nonsense"], "No such command 'nonsense'"),
    (["plan", "--nonsense"], "No such option"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), CASES, ids=[" ".join(map(str, a)) for a, _ in CASES]
)
def test_what_cannot_be_meant_is_refused(arguments, said, place, oso) -> None:
    before = content(place)
    refused(oso(*arguments), said)
    assert content(place) == before
