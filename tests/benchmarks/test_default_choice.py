"""The default of `train_private` is what its benchmark chose, and the page has its numbers."""

import importlib.util
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from oso_dp.study.default_points import RECOMMENDED

REPO = Path(__file__).parents[2]
CHOSEN, RIVALS = "online_no_momentum_3_linear", ("online", "opacus_0.5")


@pytest.fixture(scope="module")
def benchmark():
    """The module of `benchmarks/default_choice`, which is run by the folder's name."""
    path = REPO / "benchmarks/default_choice/__main__.py"
    spec = importlib.util.spec_from_file_location("default_choice", path)
    module = importlib.util.module_from_spec(spec)
    before = {*sys.modules}, [*sys.path]
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before[1]
    for name in {*sys.modules} - before[0]:
        if name in ("candidates", "tasks"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def rows(benchmark) -> dict[str, pd.DataFrame]:
    found = benchmark.rows_so_far()
    roles = found.task.map({name: task.role for name, task in benchmark.TASKS.items()})
    return dict(iter(found.groupby(roles)))


def regrets(benchmark, rows) -> dict[str, tuple[float, int]]:
    """The mean regret of each candidate, and the number of its cells, as printed."""
    lines = [line.split() for line in benchmark.table(rows["choose"]).splitlines()[2:]]
    return {name: (float(mean), int(cells)) for name, mean, _, cells, *_ in lines}


def test_default_choice_has_lowest_regret(benchmark, rows) -> None:
    of_all = regrets(benchmark, rows)
    whole = {name: mean for name, (mean, cells) in of_all.items() if cells == 36}
    assert min(whole, key=whole.get) == CHOSEN


def test_recommended_equals_measured_candidate(benchmark) -> None:
    options = benchmark.CANDIDATES[CHOSEN](1000)
    rates = {options.pop("threshold_rate"), options.pop("learning_rate_rate")}
    assert rates == {2.5e-3}  # Online's own
    method, variant = RECOMMENDED.method, RECOMMENDED.variant
    assert options == {"method": method, **variant, **RECOMMENDED.point, **RECOMMENDED.constants}


def test_page_numbers_match_benchmark(benchmark, rows) -> None:
    page = (REPO / "docs/user/choosing_a_method.md").read_text(encoding="utf-8")
    section = page.partition("## The default of `train_private`")[2].partition("\n## ")[0]
    of_all = regrets(benchmark, rows)
    rows_of_page = re.findall(r"^\| .* \| `(\w[\w.]*)` \| ([\d.]+) \|$", section, re.M)
    assert len(rows_of_page) > 5
    for name, value in rows_of_page:
        assert float(value) == pytest.approx(of_all[name][0], abs=0.051), name
    found = benchmark.gains(rows["judge"], CHOSEN, RIVALS).set_index(["task", "rival"])
    lines = re.findall(
        r"^\| `(\w+)` .*?\| ([\d.]+) \| ([+−].*?) \| ([+−].*?) \| (\d.*) \|$", section, re.M
    )
    assert len(lines) == 4
    for task, mean, *printed, cells in lines:
        row = found.loc[task].loc[list(RIVALS)]
        assert float(mean) == pytest.approx(row["mean"].iloc[0], abs=0.051)
        lengths = [epsilons for part in cells.split("; ") for epsilons in part.split(": ")[1:]]
        assert len(", ".join(lengths).split(", ")) == row["cells"].min()
        for text, rival in zip(printed, row.itertuples(), strict=True):
            numbers = [float(one) for one in re.findall(r"-?[\d.]+", text.replace("−", "-"))]
            assert numbers == pytest.approx([rival.gain, rival.low, rival.high], abs=0.051)


def test_page_gains_by_length_match_benchmark(rows) -> None:
    page = (REPO / "docs/user/choosing_a_method.md").read_text(encoding="utf-8")
    page = " ".join(page.replace("−", "-").split())  # a line may end anywhere in a sentence
    judged = rows["judge"][rows["judge"].epsilon == 3]
    means = judged.groupby(["task", "epochs", "candidate"]).score.mean().unstack()
    gains = (means[CHOSEN] - means["online"]).groupby("epochs").mean()
    printed = re.search(r"epsilon = 3 are (\S+), (\S+) and (\S+) points with 1, 3 and 10", page)
    assert [float(one) for one in printed.groups()] == pytest.approx([*gains], abs=0.051)
    others = (means[CHOSEN] - means["online"]).drop("breast_cancer").groupby("epochs").mean()
    printed = re.search(r"without `breast_cancer` (\S+), (\S+) and (\S+)\. On", page)
    assert [float(one) for one in printed.groups()] == pytest.approx([*others], abs=0.051)
    last = means.loc[("fashion_mnist_labels", 10)]
    better, default = re.search(r"at ten epochs, ([\d.]+) against ([\d.]+) %", page).groups()
    assert (float(better), float(default)) == pytest.approx((last.online, last[CHOSEN]), abs=0.051)
