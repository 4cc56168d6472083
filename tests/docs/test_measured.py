"""Numbers in sentences and tables of the pages are those of the report: new rows move them."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oso_dp.analysis.verdicts import Sample, difference

EXPERIMENTS = {"08": ("3 | 5 | 7 | 9", 1), "09": ("1 | 2 | 3 | 4", 2)}
METHODS = {
    "Online": "online",
    "AdamWOSM": "adam_wosm",
    "FixedThreshold": "fixed_threshold",
    "FixedQuantile": "fixed_quantile",
}
GUESSED = {
    "Online from rho": ("online", ""),
    "AUTO-S": ("auto_s", ""),
    "FixedThreshold with C = 0.1": ("fixed_threshold_preset", ""),
    "the same, rate falling to zero": ("fixed_threshold_preset", "rate falling"),
}


@pytest.fixture(scope="module")
def page(repo: Path):
    def read(name: str) -> str:
        return " ".join((repo / f"docs/{name}.md").read_text(encoding="utf-8").split())

    return read


@pytest.fixture(scope="module")
def table(repo: Path):
    def read(name: str) -> pd.DataFrame:
        return pd.read_csv(repo / f"reports/{name}.csv", keep_default_na=False, na_values=[""])

    return read


def of(cells: pd.DataFrame, **known: object) -> pd.Series:
    """The one row that has these values."""
    for name, value in known.items():
        cells = cells[cells[name] == value]
    assert len(cells) == 1, known
    return cells.iloc[0]


@pytest.mark.parametrize("number", EXPERIMENTS)
def test_values_at_the_papers_points_stand_beside_the_papers(
    number: str, repo: Path, table
) -> None:
    budgets, digits = EXPERIMENTS[number]
    cells = table(f"tables/table_{number}")
    text = (repo / "docs/findings.md").read_text(encoding="utf-8")
    rows = text.split(f"| method | epsilon {budgets} |\n", 1)[1].split("\n\n", 1)[0]
    seen = 0
    for title, method in METHODS.items():
        (row,) = re.findall(rf"^  \| {title} \| (.*) \|$", rows, re.M)
        for epsilon, said in zip(budgets.split(" | "), row.split(" | "), strict=True):
            if said.endswith("(all diverge)"):
                continue
            own, last, printed = re.fullmatch(
                r"([\d.]+)(?: / ([\d.]+))? \(([\d.]+)\)", said
            ).groups()
            cell = of(cells, epsilon=float(epsilon), method=method)
            assert own == f"{cell['at_paper_mean']:.{digits}f}", (method, epsilon)
            if last is not None:
                assert last == f"{cell['at_paper_last_mean']:.{digits}f}", (method, epsilon)
            assert float(printed) == pytest.approx(cell["paper_mean"], abs=0.051), (method, epsilon)
            seen += 1
    assert seen == {"08": 16, "09": 15}[number]


def test_momentum_is_judged_by_the_cells_as_they_are(repo: Path, table) -> None:
    """Its last column; the others are of stores that nothing is added to."""
    text = (repo / "docs/findings.md").read_text(encoding="utf-8")
    row = re.compile(r"^  \|([^|]*)\| (\w+)[^|]*\| ([\d.]+) ± [\d.]+ \|.*\| ([\d.]+) \|$", re.M)
    tables = {("MNIST", "9"): "08", ("MNIST", "5"): "11", ("Fashion-MNIST", "9"): "09"}
    where, seen = "", 0
    for cell, title, printed, ours in row.findall(text):
        where = cell.strip() or where
        dataset, k, epsilon = re.fullmatch(r"([\w-]+), k = (\d), epsilon = (\d)", where).groups()
        stored = of(
            table(f"tables/table_{tables[dataset, k]}"),
            epsilon=float(epsilon),
            method=METHODS[title],
        )
        assert float(printed) == stored["paper_mean"], (where, title)
        digits = len(ours.split(".")[1])
        assert ours == f"{stored['at_paper_mean']:.{digits}f}", (where, title)
        seen += 1
    assert seen == 7


def test_the_part_of_ag_news_begins_with_its_grids(page, table) -> None:
    cells = table("tables/ag_news_partial_k5")
    text = page("news-part")
    said = re.search(
        r"At epsilon = 3 AdamWOSM has ([\d.]+), Online ([\d.]+), FixedThreshold ([\d.]+) and "
        r"FixedQuantile ([\d.]+);",
        text,
    ).groups()
    order = ("AdamWOSM", "Online", "FixedThreshold", "FixedQuantile")
    means = [of(cells, epsilon=3.0, method=METHODS[title])["mean"] for title in order]
    assert list(said) == [f"{mean:.1f}" for mean in means]


def test_grids_of_one_hyperparameter_stand_with_each_size(page, table) -> None:
    text = page("news-part")
    for epsilon, begin in ((3.0, "1.43, "), (9.0, "0.79, ")):
        part = text.split(begin, 1)[1]
        for title in ("Online", "AdamWOSM"):
            said = re.match(rf".*?{title} (?:has )?([\d.]+), ([\d.]+) and ([\d.]+)", part).groups()
            for k, value in zip((5, 7, 9), said, strict=True):
                cells = table(f"tables/ag_news_partial_k{k}")
                mean = of(cells, epsilon=epsilon, method=METHODS[title])["mean"]
                assert value.rstrip(".") == f"{mean:.2f}", (title, epsilon, k)


@pytest.mark.parametrize("title", ["FixedThreshold", "FixedQuantile"])
def test_grids_of_two_hyperparameters_stand_with_their_intervals(title: str, page, table) -> None:
    """Values of each size, at each epsilon; and the distances to Online's grid of the same k."""
    text = page("news-part")
    part = text.split(f"{title}'s grids of 25, ", 1)[1].split(" - ", 1)[0]
    cells = {k: table(f"tables/ag_news_partial_k{k}") for k in (5, 7, 9)}
    said = re.findall(r"(\d\d\.\d\d), (\d\d\.\d\d) and (\d\d\.\d\d) at (?:epsilon = )?(\d)", part)
    assert [epsilon for *_, epsilon in said] == ["3", "5", "7", "9"]
    for *values, epsilon in said:
        for k, value in zip(cells, values, strict=True):
            cell = of(cells[k], epsilon=float(epsilon), method=METHODS[title])
            assert value == f"{cell['mean']:.2f}", (k, epsilon)
            assert cell["grid_points"] == cell["grid_size"]
    distances = re.findall(r"(-?\d\.\d\d) \[(-?\d\.\d\d), (-?\d\.\d\d)\]", part)[-4:]
    for epsilon, numbers in zip((3.0, 5.0, 7.0, 9.0), distances, strict=True):
        one, other = (
            of(cells[9], epsilon=epsilon, method=method) for method in ("online", METHODS[title])
        )
        gap = difference(
            [tuple(Sample(row["mean"], row["std"], int(row["seeds"])) for row in (one, other))]
        )
        assert [float(number) for number in numbers] == pytest.approx(
            [gap.mean, gap.low, gap.high], abs=0.0051
        ), epsilon


def test_guesses_on_mnist_are_those_of_the_figure(repo: Path, table) -> None:
    """And bold where they are ahead of Online's search, as far as it has run."""
    text = (repo / "docs/guess-or-search.md").read_text(encoding="utf-8")
    head = re.search(r"^\| epsilon \| guess \| rho = ([\d.]+) \|(.*)\|$", text, re.M)
    rates = [float(rate) for rate in (head[1], *head[2].split("|"))]
    guesses = table("figures/no_search_mnist_k9").fillna({"laid": ""})
    epsilon, seen = 0.0, 0
    for line in text[head.end() :].strip().splitlines()[1:]:
        if not line.startswith("|"):
            break
        budget, title, *values = [cell.strip() for cell in line.strip("|").split("|")]
        epsilon = float(budget) if budget else epsilon
        method, laid = GUESSED[title]
        mine = guesses[(guesses["epsilon"] == epsilon) & (guesses["method"] == method)]
        mine = mine[mine["laid"] == laid]
        for rate, value in zip(rates, values, strict=True):
            stored = mine[(mine["learning_rate"] / rate - 1).abs() < 0.01].iloc[0]
            ahead = stored["mean"] > stored["online_mean"]
            assert value.startswith("**") == value.endswith("**") == ahead, (title, epsilon, rate)
            said = float(value.strip("*"))
            assert said == pytest.approx(stored["mean"], abs=0.051), (title, epsilon, rate)
            seen += 1
    assert seen == 8 * 7


def test_gains_of_defaults_on_mnist_have_their_intervals(page, table) -> None:
    ways = table("tables/one_budget").fillna({"laid": ""})
    ways = ways[(ways["dataset"] == "mnist") & (ways["way"] == "default") & (ways["k"] == 1)]
    text = page("guess-or-search").split("Gains over it: ", 1)[1].split("These defaults", 1)[0]
    methods = {
        **{"AUTO-S": "auto_s", "AUTO-DoG": "auto_dog", "AUTO-WOSM": "auto_wosm"},
        **{"Online": "online", "AdamWOSM": "adam_wosm"},
    }
    pair = r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]"
    found = re.findall(rf"([A-Z][\w-]+)[^,\[]*? {pair} and {pair}", text)
    assert {title for title, *_ in found} == methods.keys()
    for title, *numbers in found:
        for epsilon, said in ((3.0, numbers[:3]), (9.0, numbers[3:])):
            way = of(ways, epsilon=epsilon, method=methods[title])
            gain, half = way["gain"], way["gain_half"]
            wanted = (gain, gain - half, gain + half)
            assert [float(one) for one in said] == [
                pytest.approx(one, abs=0.051) for one in wanted
            ], (title, epsilon)


@pytest.mark.parametrize("epsilon", [3, 9])
def test_mnist_under_random_stopping_stands_beside_its_composition(epsilon, page, table) -> None:
    outcomes = table("tables/search_outcome")
    outcomes = outcomes[(outcomes["dataset"] == "mnist") & (outcomes["epsilon"] == epsilon)]
    stopped, whole = (of(outcomes, selection=way) for way in ("random_stopping", "composition"))
    row = (
        f"| {epsilon} | {stopped['noise_multiplier']:.3f} instead of "
        f"{whole['noise_multiplier']:.3f} | {stopped['value']:.2f} ± {stopped['std']:.2f} | "
        f"{stopped['luck']:.2f} | {whole['value']:.2f} ± {whole['std']:.2f} |"
    )
    text = page("random-stopping")
    assert row in text
    assert (stopped["k"], stopped["grid_size"], stopped["distribution"]) == (5, 5, "poisson")
    gap = difference([tuple(Sample(*one[["value", "std", "seeds"]]) for one in (stopped, whole))])
    assert f"{gap.mean:.2f} [{gap.low:.2f}, {gap.high:.2f}]" in text


def test_auto_wosm_on_mnist_stands_beside_online_at_each_budget(page, table) -> None:
    budgets = table("tables/one_budget")
    budgets = budgets[(budgets["dataset"] == "mnist") & (budgets["method"] == "auto_wosm")]
    budgets = budgets[budgets["way"] == "default"].sort_values("epsilon")
    points = table("tables/table_08")
    points = points[points["method"] == "online"].sort_values("epsilon")
    assert budgets["epsilon"].tolist() == points["epsilon"].tolist() == [3, 5, 7, 9]
    text = page("methods-tried")
    for values in (budgets["mean"], points["at_paper_mean"]):
        *some, last = (f"{value:.1f}" for value in values)
        assert f"has {', '.join(some)} and {last}" in text
    assert (budgets["seeds"] == 3).all()
    gain, half = of(budgets, epsilon=9)[["gain", "gain_half"]]
    assert f"({gain:.1f} [{gain - half:.1f}, {gain + half:.1f}])" in text


@pytest.mark.parametrize("epsilon", [3.0, 9.0])
def test_the_linear_scaling_rule_on_mnist_stands_beside_the_search(epsilon, repo, table) -> None:
    row = of(table("tables/linear_scaling"), dataset="mnist", epsilon=epsilon, method="online")
    gain = of(table("tables/one_budget"), dataset="mnist", epsilon=epsilon, way="linear_scaling")
    text = (repo / "docs/linear-scaling.md").read_text(encoding="utf-8")
    (said,) = re.findall(rf"^\| {epsilon:g} \| ([\d., ]+) \| (.*) \|$", text, re.M)
    assert said[0].split(", ")[-1] == f"{row['noise_multiplier']:.3f}"
    low, high = (gain["gain"] + side * gain["gain_half"] for side in (-1, 1))
    assert said[1] == (
        f"{row['mean']:.2f} ± {row['std']:.2f} | {row['own_mean']:.2f} ± {row['own_std']:.2f}, "
        f"noise multiplier {row['own_noise_multiplier']:.3f} | {gain['gain']:.2f} "
        f"[{low:.2f}, {high:.2f}]"
    )
    assert row["learning_rates"] == "0.316228 (3)"
    assert "from rho_0 = 3.16 these have 95.4, 95.7 and 95.7" in " ".join(text.split())


def test_the_final_runs_that_the_rule_missed_are_in_the_store(repo: Path) -> None:
    scores = []
    for file in repo.glob("results/runs.parquet/mnist.online.k5.eps9.linear_scaling.final.*"):
        runs = pd.read_parquet(file)
        seen = pd.read_parquet(repo / "results/evaluations.parquet" / file.name)
        missed = set(runs.loc[np.isclose(runs["learning_rate"], 10**0.5), "run_id"])
        seen = seen[(seen["split"] == "test") & seen["run_id"].isin(missed)]
        scores += seen.groupby("run_id")["value"].max().tolist()
    assert [f"{100 * score:.1f}" for score in sorted(scores)] == ["95.4", "95.7", "95.7"]
