"""Which figures show what privacy costs, and what is said below them."""

from collections.abc import Iterator

import pandas as pd

from oso_dp.reporting import labels
from oso_dp.reporting.compare import Study
from oso_dp.reporting.draw_accountants import (
    DELTA,
    EPOCHS,
    NOISE_MULTIPLIER,
    RATE,
    accountants,
    draw_accountants,
)
from oso_dp.reporting.draw_prices import draw_prices
from oso_dp.reporting.draw_split import draw_split
from oso_dp.reporting.pictures import PicturePlan
from oso_dp.reporting.prices import RULES, grids_at_largest_k, of_rule, search_prices
from oso_dp.reporting.tables import noise_table


def price_plans(study: Study) -> Iterator[PicturePlan]:
    """The price of a search on each data set, the split of Online's noise, the accountants."""
    prices = search_prices(study)
    for dataset in prices["dataset"].unique():
        yield _search_plan(study, dataset, prices[prices["dataset"] == dataset])
    yield from _split_plan(study)
    yield _accountants_plan()


def _search_plan(study: Study, dataset: str, prices: pd.DataFrame) -> PicturePlan:
    marks = grids_at_largest_k(study, dataset)
    epsilon, delta = prices["epsilon"].iloc[0], prices["delta"].iloc[0]
    where = f"{labels.dataset_short(dataset)}, ε = {epsilon:g} for the whole search"
    caption = (
        f"{where}, δ = {labels.delta_text(delta)}: the noise multiplier of each run against the "
        "number of runs N. Dotted lines stand at the methods' grids at the study's largest k. "
        f"{_compared(prices, marks)}"
    )
    return PicturePlan(
        f"search_price_{dataset}",
        dataset,
        None,
        "price",
        caption.strip(),
        lambda: draw_prices(prices, marks, where),
    )


def _compared(prices: pd.DataFrame, marks: dict[int, list[str]]) -> str:
    """What the largest grid pays over Online's, rule by rule, as a sentence."""
    online = next((n for n, methods in marks.items() if "online" in methods), None)
    if online is None or online == max(marks):
        return ""
    most = max(marks)
    parts = []
    for rule in RULES:
        line = of_rule(prices, rule)
        ratio = line.get(most, float("nan")) / line.get(online, float("nan"))
        if not labels.missing(ratio):
            parts.append(f"{ratio:.2f} ({rule.label})")
    if not parts:
        return ""
    names = " and ".join(map(labels.method_label, marks[most]))
    return (
        f"From Online's grid of {online} to the grid of {most} ({names}), the noise grows by a "
        f"factor of {', '.join(parts)}."
    )


def online_grids(study: Study) -> pd.DataFrame:
    """Online's grids at its largest k on one data set, MNIST if there; a row per epsilon.

    Columns dataset, k, epsilon, noise_multiplier and ratio = nu_q / nu; rows of unknown ratio are
    left out.
    """
    noise = noise_table(study).data
    noise = noise[noise["method"] == "online"]
    ratios = {**_ratios(study.runs), **_ratios(study.budget)}
    noise = noise.assign(
        ratio=[ratios.get((r.dataset, r.k, r.epsilon), float("nan")) for r in noise.itertuples()]
    ).dropna(subset="ratio")
    first = noise["dataset"].iloc[:1].tolist()  # labels.DATASETS has MNIST first
    noise = noise[noise["dataset"].isin(first)]
    noise = noise[noise["k"] == noise["k"].max()].sort_values("epsilon")
    columns = ["dataset", "k", "epsilon", "noise_multiplier", "ratio"]
    return noise[columns].reset_index(drop=True)


def _ratios(frame: pd.DataFrame) -> dict[tuple[str, int, float], float]:
    known = frame[frame["method"] == "online"].dropna(
        subset=["epsilon", "noise_multiplier", "query_noise_multiplier"]
    )
    return {
        (row.dataset, int(row.k), float(row.epsilon)): (
            row.query_noise_multiplier / row.noise_multiplier
        )
        for row in known.itertuples()
    }


def _split_plan(study: Study) -> Iterator[PicturePlan]:
    online = online_grids(study)
    if online.empty:
        return
    dataset, k = online["dataset"].iloc[0], int(online["k"].iloc[0])
    where = f"{labels.dataset_short(dataset)}, Online's grids at k = {k}"
    yield PicturePlan(
        "figure_02",
        dataset,
        None,
        "price",
        f"{where}: pairs of noise multipliers, of the gradient (ν_g) and of the direction in which "
        "the clipping threshold moves (ν_q), that together cost as much as one sum with ν "
        "(Proposition 1). The point is the pair that Online uses. The dotted line is ν, which ν_g "
        "approaches as ν_q grows. The paper's Figure 2 shows this for MNIST "
        f"and does not say for which k; this is k = {k}, the study's largest.",
        lambda: draw_split(online, f"{where}: how two noisy sums share one price"),
    )


def _accountants_plan() -> PicturePlan:
    last = accountants().iloc[-1]
    return PicturePlan(
        "moments_accountant",
        "",
        None,
        "price",
        f"The same {EPOCHS[-1]} epochs (q = {RATE:g}, ν = {NOISE_MULTIPLIER:g}, δ = "
        f"{labels.delta_text(DELTA)}, as in Figure 2 of Abadi et al. 2016) cost ε = "
        f"{last['advanced']:.3g} by advanced composition of the steps' own guarantees, "
        f"{last['rdp']:.3g} by RDP, which took the moments accountant's place, and "
        f"{last['pld']:.3g} by privacy loss distributions. The noise is the same; only the "
        "bookkeeping differs. Abadi et al. state 9.34 and 1.26 at 100 epochs: they let "
        "sampling turn ε into qε, which holds for small ε only, and get ε by an older bound.",
        lambda: draw_accountants("One training, three ways to account for it"),
    )
