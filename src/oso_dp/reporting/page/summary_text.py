"""Summary sentences of the report, computed from the results."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import DIVERGED, NOT_RUN, RAN, have_paper_length, list_panels
from oso_dp.analysis.noise_tables import noise_multipliers
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import COMPARABLE_ON, best_row
from oso_dp.analysis.verdicts import (
    Sample,
    is_comparable_with_paper,
    is_incomplete_grid,
    judge_cells,
    judge_paper_cells,
    scale_to_margin,
)
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import DATASETS, PAPER_EPOCHS, SEEDS, paper_results
from oso_dp.reporting.tables.claims import claims_count, claims_sentence
from oso_dp.reporting.tables.study import rules_sentence


def verdict_text(study: ResultSet, claims: pd.DataFrame) -> str:
    """One sentence on the reproduction; without the paper's data sets, on the best methods.

    claims: from `claims.judge_claims`.
    """
    if not set(study.datasets) & set(DATASETS):
        return " ".join(unmatched_results_text(study))
    cells = judge_paper_cells(study)
    printed = cells[cells["paper_mean"].notna()]
    words = printed["verdict"]
    decided = (
        verdicts.CONSISTENT,
        verdicts.BETTER,
        verdicts.WORSE,
        DIVERGED,
    )
    ran = int((words != NOT_RUN).sum())
    if not words.isin(decided).any():
        opening = (
            f"Neither confirmed nor refuted yet: of the {len(words)} values that the paper prints, "
            f"{_were_run(ran)}, none with a verdict"
        )
    else:
        parts = []
        for dataset, found in printed.groupby("dataset", sort=False)["verdict"]:
            counts = {word: int((found == word).sum()) for word in decided}
            left = int((found != NOT_RUN).sum()) - sum(counts.values())
            parts_text = [f"{number} {word}" for word, number in counts.items() if number]
            parts_text += [f"{left} undecided"] if left else []
            if parts_text:
                parts.append(f"on {labels.dataset_short(dataset)} {_listed(parts_text)}")
        opening = (
            f"Of the {len(words)} values that the paper prints, {_were_run(ran)}: "
            f"{'; '.join(parts)}"
        )
    return f"{opening}; {claims_count(claims)}."


def _were_run(count: int) -> str:
    return f"{count} {'was' if count == 1 else 'were'} run"


def findings_text(study: ResultSet, claims: pd.DataFrame) -> list[str]:
    """Sentences on the paper's values and claims, selection bias and the cost in noise.

    claims: from `claims.judge_claims`.
    """
    cells = [judge_cells(study, dataset, k) for dataset, k in list_panels(study)]
    paper = bool(set(study.datasets) & set(DATASETS))
    return [
        *agreement_text(study),
        *([claims_sentence(claims)] if paper else []),
        *(unmatched_results_text(study) if paper else []),
        rules_sentence(study),
        *coverage_text(cells),
        *noise_cost_text(study),
    ]


def unmatched_results_text(study: ResultSet) -> list[str]:
    """The best methods where the paper has no table."""
    frames = [judge_cells(study, dataset, k) for dataset, k in list_panels(study)]
    sentences = [best_method_text(frame) for frame in frames if not frame["in_paper"].any()]
    return [sentence for sentence in sentences if sentence]


def run_summary_text(study: ResultSet) -> str:
    """The number of runs, and of seeds per value."""
    runs = study.runs
    diverged = int((runs["status"] == "diverged").sum())
    where = _listed([labels.dataset_short(d) for d in study.datasets])
    text = f"{_count(len(runs), 'run')} of {_count(len(study.methods), 'method')} on {where}: "
    text += f"{len(runs) - diverged:,} finished, {diverged:,} diverged. "
    seeds = study.best.loc[study.best["seeds"] > 0, "seeds"]  # without a cell that has no value
    if seeds.empty:  # no grid was searched
        seeds = study.values.groupby("point")["seed"].nunique()
    fewest, most = seeds.min(), seeds.max()
    if most <= 1:
        return text + "Every value has one seed, so there are no standard deviations."
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return text + f"Values are means of {span} seeds."


def best_method_text(cells: pd.DataFrame) -> str | None:
    """The best private method at each epsilon of one data set at one k; None if none was run.

    Beside an incomplete grid, methods are ranked at the paper's best points if all of them have a
    value there. Runs shorter than the paper's are not ranked; only comparable runs are ranked
    together. At several epsilons, those with the same best method share a clause.
    """
    private = cells[cells["epsilon"].notna()]
    ran = private[private["status"] == RAN]
    whole = have_paper_length(ran)
    shorter = dict.fromkeys(ran.loc[~whole, "epsilon"], f"was run for {PAPER_EPOCHS} epochs")
    ran = ran[whole]
    if ran.empty:
        return None
    diverged = cells.loc[cells["status"] == DIVERGED, "epsilon"]
    alone = shorter | dict.fromkeys(diverged, "has a value")
    missing = private[private["status"] == NOT_RUN].groupby("epsilon")["method"].agg(list)
    rankings = [
        _rank(rows, missing.get(epsilon, default=[])) for epsilon, rows in ran.groupby("epsilon")
    ]
    where = f"{labels.dataset_short(ran['dataset'].iloc[0])}, k = {ran['k'].iloc[0]}"
    parts = []
    for kind in dict.fromkeys(ranking.kind for ranking in rankings):
        same = [ranking for ranking in rankings if ranking.kind == kind]
        if len(same) > 1:
            parts.append(_joint_clause(same))
        else:
            parts += [_clause(ranking, alone.get(ranking.epsilon, "was run")) for ranking in same]
    return f"{where}: {'; '.join(parts)}."


@dataclass(frozen=True)
class _Ranking:
    """The largest comparable group of one epsilon, the best first."""

    epsilon: float
    rows: pd.DataFrame  # empty if no two are comparable
    others: str = ""  # names of those that are not comparable
    missing: str = ""  # names of those that were not run
    at_paper_points: bool = False

    @property
    def name(self) -> str:
        return "" if self.rows.empty else _name(self.rows.iloc[0])

    @property
    def kind(self) -> tuple[str | float, ...]:
        """Rankings that agree on it share a clause: one method is the best."""
        return (self.name, self.at_paper_points) if self.is_decided else (self.epsilon,)

    @property
    def lead(self) -> float:
        return float(abs(self.rows["mean"].iloc[0] - self.rows["mean"].iloc[1]))

    @property
    def is_decided(self) -> bool:
        return len(self.rows) > 1 and not self.doubt

    @property
    def doubt(self) -> str:
        """Why the lead does not decide; empty if it does."""
        if self.incomplete:
            return f"incomplete grid of {self.incomplete}"
        first, second = (
            scale_to_margin(row["dataset"], Sample.of(row))
            for row in self.rows.iloc[:2].to_dict("records")
        )
        lead = verdicts.difference([(first, second)])
        if lead is None or min(first.seeds, second.seeds) < 2:
            return "one seed"
        return "" if abs(lead.mean) > lead.half else "within chance"

    @property
    def incomplete(self) -> str:
        """Methods with an incomplete grid: the best of more points is larger by their number."""
        rows = [] if self.at_paper_points else self.rows.to_dict("records")
        return ", ".join(_name(row) for row in rows if is_incomplete_grid(row))


def _rank(rows: pd.DataFrame, missing: list[str]) -> _Ranking:
    epsilon = rows["epsilon"].iloc[0]
    kinds = rows.groupby(COMPARABLE_ON, dropna=False).ngroup()
    counts = kinds.map(kinds.value_counts())
    if 1 == counts.max() < len(rows):
        return _Ranking(epsilon, rows.iloc[:0])
    alike = rows[kinds == kinds[counts.idxmax()]]
    others = _methods_listed(set(rows["method"]) - set(alike["method"]))
    is_part = any(is_incomplete_grid(row) for row in alike.to_dict("records"))
    at_paper_points = is_part and len(alike) > 1 and bool(alike["at_paper_mean"].notna().all())
    if at_paper_points:
        for name in ("mean", "std", "seeds"):
            alike = alike.assign(**{name: alike[f"at_paper_{name}"]})
    higher = is_higher_better(rows["metric"].iloc[0])
    ranked = alike.sort_values(["mean", "method"], ascending=[not higher, True])
    return _Ranking(epsilon, ranked, others, _methods_listed(missing), at_paper_points)


def _methods_listed(names: Iterable[str]) -> str:
    return ", ".join(labels.method_label(name) for name in labels.sort_methods(names))


def _clause(ranking: _Ranking, alone: str) -> str:
    """The best and second-best method at one epsilon; alone: predicate for a single method."""
    at = f"at ε = {ranking.epsilon:g}{_basis(ranking)}"
    if ranking.rows.empty:
        return f"{at} no two have the same precision, length and delta"
    first = ranking.rows.iloc[0]
    value = f"{labels.format_mean_std(first['mean'], first['std'])} {first['unit']}"
    if len(ranking.rows) == 1:
        text = f"{at} only {ranking.name} {alone}, {value}"
    else:
        text = f"{at} {ranking.name} is best with {value}"
        if ranking.doubt:
            text = f"{at} undecided ({ranking.doubt}): {ranking.name} has {value}"
        text += f", {_points(ranking, ranking.lead)} ahead of {_name(ranking.rows.iloc[1])}"
    return "; ".join([text, *_left_out(ranking)])


def _basis(ranking: _Ranking) -> str:
    return ", at the paper's points," if ranking.at_paper_points else ""


def _points(ranking: _Ranking, *leads: float) -> str:
    """Leads with their unit if it is short."""
    text = " to ".join(f"{lead:.2f}" for lead in leads)
    unit = labels.difference_unit(ranking.rows["metric"].iloc[0])
    return f"{text} points" if unit == "points" else text


def _left_out(ranking: _Ranking) -> list[str]:
    """What is not ranked, a phrase each."""
    phrases = {"not comparable (precision, length or delta)": ranking.others}
    if len(ranking.rows) > 1:
        phrases[NOT_RUN] = ranking.missing
    return [f"{phrase}: {names}" for phrase, names in phrases.items() if names]


def _joint_clause(rankings: list[_Ranking]) -> str:
    """One method that is best at several epsilons."""
    leads = sorted(ranking.lead for ranking in rankings)
    notes: dict[str, list[str]] = {}
    for ranking in rankings:
        for note in _left_out(ranking):
            notes.setdefault(note, []).append(f"{ranking.epsilon:g}")
    first = rankings[0]
    budgets = _listed([f"{ranking.epsilon:g}" for ranking in rankings])
    text = f"{first.name} is best at ε = {budgets}{_basis(first) or ','} "
    text += f"{_points(first, leads[0], leads[-1])} ahead of the next"
    everywhere = len(rankings)
    details = [
        note if len(at) == everywhere else f"{note} at ε = {_listed(at)}"
        for note, at in notes.items()
    ]
    return f"{text} ({'; '.join(details)})" if details else text


def _name(cell: Mapping) -> str:
    return labels.variant_method_label(cell["method"], cell["variant"])


def agreement_text(study: ResultSet) -> list[str]:
    """How far the values are from those that the paper prints."""
    cells = judge_paper_cells(study)
    ran = cells[cells["paper_mean"].notna() & (cells["status"] != NOT_RUN)]
    if ran.empty:
        return []
    comparable = ran[[is_comparable_with_paper(row) for row in ran.to_dict("records")]]
    sentences = []
    for unit, rows in comparable.dropna(subset="difference").groupby("unit"):
        far = rows.iloc[int(rows["difference"].abs().argmax())]
        sentences.append(
            f"In {unit} the median absolute difference from the paper's values is "
            f"{rows['difference'].abs().median():.2f}, the largest "
            f"{labels.format_signed(far['difference'])} ({labels.method_label(far['method'])}, "
            f"{labels.dataset_short(far['dataset'])}, k = {far['k']}, ε = {far['epsilon']:g})."
        )
    return [" ".join([*sentences, _seeds(ran)])] if sentences else []


def _seeds(rows: pd.DataFrame) -> str:
    seeds = rows.loc[rows["seeds"] > 0, "seeds"]
    fewest = seeds.min() if len(seeds) else 0
    if fewest >= SEEDS:
        return f"Both are means of {SEEDS} seeds or more."
    return f"The paper's are means of {SEEDS} seeds, ours of as few as {fewest}."


def coverage_text(cells: list[pd.DataFrame]) -> list[str]:
    """A warning about incomplete grids: their best point is over fewer candidates."""
    if not cells:
        return []
    ran = pd.concat(cells)
    ran = ran[(ran["status"] != NOT_RUN) & ran["grid_size"].notna()]
    part = sum(map(is_incomplete_grid, ran.to_dict("records")))
    if not part:
        return []
    return [
        f"{part} of {_count(len(ran), 'grid')} are incomplete: the noise is that of the "
        "complete grid, but the best is taken over the points that were run."
    ]


def noise_cost_text(study: ResultSet) -> list[str]:
    """The largest ratio of a noise multiplier to Online's on the data sets that were run."""
    noise = noise_multipliers(study)
    noise = noise[noise["dataset"].isin({*study.datasets} - {*study.shared_budgets})]
    dear = noise.dropna(subset="ratio_to_online")
    dear = dear[dear["method"] != "online"]
    if dear.empty:
        return []
    most = dear.loc[dear["ratio_to_online"].idxmax()]
    same = (noise["dataset"] == most["dataset"]) & (noise["k"] == most["k"])
    online = noise[same & (noise["method"] == "online") & (noise["epsilon"] == most["epsilon"])]
    return [
        f"Cost of a larger grid ({labels.dataset_short(most['dataset'])}, k = {most['k']}, "
        f"ε = {most['epsilon']:g}): {labels.method_label(most['method'])}'s grid of "
        f"{_count(most['grid_size'], 'run')} needs {most['ratio_to_online']:.2f} times the noise "
        f"of Online's grid of {online['grid_size'].iloc[0]}."
    ]


def paper_ranking_text() -> str:
    """How often each method is best among the values that the paper prints."""
    paper = paper_results().dropna(subset="mean")
    wins: dict[str, int] = {}
    contests = paper.groupby(["table", "epsilon"])
    for _, rows in contests:
        best = rows["mean"] == best_row(rows)["mean"]
        for method in rows.loc[best, "method"]:  # ties count for both
            wins[method] = wins.get(method, 0) + 1
    ordered = sorted(wins.items(), key=lambda item: -item[1])
    counts = _listed([f"{labels.method_label(m)} in {n}" for m, n in ordered])
    return (
        f"Over its {len(contests)} printed comparisons (ties counted for both), best is {counts}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
