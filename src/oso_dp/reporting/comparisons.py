"""The paper's tables beside ours in the paper's layout, and tables of what it does not have."""

import math
from collections.abc import Iterator

import pandas as pd

from oso_dp.paper.tables import (
    DATASETS,
    SEEDS,
    PaperTable,
    find_table,
    paper_results,
    paper_tables,
)
from oso_dp.reporting import labels, verdicts
from oso_dp.reporting.compare import Study, compare
from oso_dp.reporting.figures import settings
from oso_dp.reporting.render import Table
from oso_dp.reporting.select import CELL, POINT, is_higher_better
from oso_dp.reporting.verdicts import POINT_RULE, VALUE_RULE, Comparison, Sample

RULE_NOTE = (
    "Selection as in the paper: each run's best test value over all evaluations, averaged over "
    "seeds, then the grid's best point. This looks at the test set, so it is neither private nor "
    "an honest estimate. Beside it stand the last evaluation, and cross-selection: checkpoint and "
    "point chosen on one half of the test set, reported on the other, the mean of both ways."
)
SEEDS_NOTE = f"The paper's values are means of {SEEDS} seeds. One seed is not five."

_BEYOND_NOTES = (
    "Values are in the unit of the other tables, which have the other rules of selection, too.",
    "Same budgets, same grid ranges, none of the paper's numbers: it has no such cells. "
    "“Against Online” is the difference to our own Online at the same data set, k and ε, judged by "
    "the rule of the verdicts, all cells of this table together.",
    "The noise multiplier says what the method's own grid leaves to each run: a method that "
    "searches fewer hyperparameters trains with less noise.",
)


def comparison_tables(study: Study) -> list[Table]:
    """The paper's nine tables if any of its data sets was run, one per other data set and k, and,
    if there is anything in it, the table `beyond`."""
    tables = []
    if set(study.datasets) & set(DATASETS):
        tables += [paper_table(study, table) for table in paper_tables()]
    for dataset, k in settings(study):
        if find_table(dataset, k) is None:
            tables.append(cells_table(study, dataset, k))
    return [*tables, *beyond_table(study)]


def paper_table(study: Study, table: PaperTable) -> Table:
    """One of Tables 2-4 and 8-13, in its layout: three lines per epsilon, a group per method.

    `data` has a row per cell, NoDP's included; `details` a line per cell.
    """
    data = compare(study, table.dataset, table.k)
    data = data[data["in_paper"]].reset_index(drop=True)
    printed = bool(data["paper_mean"].notna().any())
    title = (
        f"Table {table.number} of the paper and ours: {labels.dataset_label(table.dataset)}, "
        f"k = {table.k}"
    )
    notes = [
        *(["Nothing of this table was run yet."] if (data["status"] == "not run").all() else []),
        *(_no_dp_note(row) for _, row in data[data["epsilon"].isna()].iterrows()),
        *_precision_note(data),
        *_epsilons_note(table),
        *_reading_notes(data),
        *filter(None, [labels.epochs_note(data["epochs"])]),
        VALUE_RULE if printed else POINT_RULE,
        RULE_NOTE,
        SEEDS_NOTE,
    ]
    details = pd.DataFrame([_details(row) for _, row in data.iterrows()])
    private = data[data["epsilon"].notna()]
    return Table(f"table_{table.number:02d}", title, data, _layout(private), tuple(notes), details)


def _layout(data: pd.DataFrame) -> pd.DataFrame:
    """Text cells: a group of columns per method (its hyperparameters, its value), and for each
    epsilon the paper's line, ours, and the verdict with the number of our seeds."""
    methods = labels.method_order(data["method"].unique())
    unit = data["unit"].iloc[0]
    head = ["ε", ""]
    columns = [("", name) for name in head]
    for method in methods:
        names = [*(labels.SYMBOLS[n] for n in labels.tuned(method)), unit]
        columns += [(labels.method_label(method), name) for name in names]
    lines = []
    for epsilon, rows in data.groupby("epsilon"):
        cells = rows.set_index("method")
        at = labels.epsilon_text(epsilon)
        first, second, third = [at, "paper"], [at, "ours"], [at, "verdict (seeds)"]
        for method in methods:
            cell = cells.loc[method]
            first += _line(cell, "paper_")
            second += _line(cell, "")
            third += [""] * len(labels.tuned(method)) + [_verdict(cell)]
        lines += [first, second, third]
    return pd.DataFrame(lines, columns=pd.MultiIndex.from_tuples(columns))


def _line(cell: pd.Series, prefix: str) -> list[str]:
    values = [labels.number(cell[prefix + name]) for name in labels.tuned(cell.name)]
    return [*values, labels.spread(cell[f"{prefix}mean"], cell[f"{prefix}std"])]


def _verdict(cell: pd.Series) -> str:
    verdict = cell["verdict"]
    if verdict == verdicts.NO_VALUE:
        verdict = cell["point_verdict"]
    return verdict if cell["status"] == "not run" else f"{verdict} ({cell['seeds']})"


def _no_dp_note(row: pd.Series) -> str:
    theirs = f"NoDP: the paper's best is at ρ = {row['paper_learning_rate']:g}, without a value; "
    if row["status"] != "run":
        return theirs + f"ours: {row['status']}."
    ours = labels.spread(row["mean"], row["std"])
    return theirs + f"ours is at ρ = {row['learning_rate']:.4g}: {ours} {row['unit']}."


def _precision_note(data: pd.DataFrame) -> Iterator[str]:
    """A line where products were not all in float32; a mean never holds two precisions."""
    ran = data[data["status"] != "not run"]
    if set(ran["precision"]) <= {"float32"}:
        return
    parts = []
    for precision, rows in ran.groupby("precision"):
        cells = [
            f"{labels.method_label(method)} at ε = "
            + ", ".join(labels.epsilon_text(epsilon) for epsilon in of_method["epsilon"])
            for method, of_method in rows.groupby("method", sort=False)
        ]
        parts.append(f"{precision}: {', '.join(cells)}")
    yield f"Products were computed in {'; in '.join(parts)}."


def _epsilons_note(table: PaperTable) -> Iterator[str]:
    """A line where the paper's tables of one data set have different budgets."""
    paper = paper_results().dropna(subset="epsilon")
    paper = paper[paper["dataset"] == table.dataset]
    budgets = paper.groupby("table")["epsilon"].unique().map(tuple)
    if budgets.nunique() > 1:
        parts = []
        for epsilons, numbers in budgets.groupby(budgets):
            which = " and ".join(str(n) for n in numbers.index)
            values = ", ".join(f"{e:g}" for e in epsilons)
            parts.append(f"Table{'s' if len(numbers) > 1 else ''} {which}: ε = {values}")
        yield (
            f"The paper contradicts itself on the budgets of this data set ({'; '.join(parts)}). "
            "Each table keeps the budgets that it prints."
        )


def _reading_notes(data: pd.DataFrame) -> list[str]:
    """One line per reading of the paper that is not the printed text, methods joined."""
    noted = data[data["paper_note"].fillna("") != ""]
    lines = []
    for (method, note), rows in noted.groupby(["method", "paper_note"], sort=False):
        at = ", ".join(labels.epsilon_text(e) for e in rows["epsilon"])
        lines.append(f"{labels.method_label(method)}, ε = {at}: {note}.")
    return lines


def _details(row: pd.Series) -> dict[str, str]:
    """A cell of the paper's in one line: what its layout has no room for."""
    verdict = row["verdict"]
    if verdict == verdicts.NO_VALUE:
        verdict = row["point_verdict"]
    return {
        **_name(row),
        "verdict": verdict,
        "ours − paper": labels.signed(row["difference"]),
        **_counts(row),
        "ours at the paper's best": labels.spread(row["at_paper_mean"], row["at_paper_std"]),
        **_other_rules(row),
    }


def cells_table(study: Study, dataset: str, k: int) -> Table:
    """A data set, or a k of one, that the paper does not have: a line per cell."""
    data = compare(study, dataset, k)
    shown = pd.DataFrame(
        [
            _name(row) | _own(row, f"ours, {row['unit']}") | _other_rules(row)
            for _, row in data.iterrows()
        ]
    )
    title = f"{labels.dataset_label(dataset)}, k = {k}: best on test"
    notes = (
        labels.DATASET_NOTES.get(dataset, ""),
        labels.epochs_note(data["epochs"]) if dataset in DATASETS else "",
        *_precision_note(data),
        RULE_NOTE,
    )
    return Table(f"{dataset}_k{k}", title, data, shown, tuple(n for n in notes if n))


def beyond_table(study: Study) -> list[Table]:
    """The cells that were run and stand in none of the paper's tables, each against Online.

    Further methods, controls, other k and budgets; on data sets that the paper does not have, which
    have a table of their own, further methods and controls only. Empty where there is none.
    """
    frames = []
    for dataset, k in settings(study):
        cells = compare(study, dataset, k)
        further = ~cells["in_paper"]
        if dataset not in DATASETS:
            further &= ~cells["method"].isin(labels.METHODS)
        further = cells[further]
        if len(further):
            online = cells[(cells["method"] == "online") & (cells["status"] == "run")]
            frames.append(
                further.merge(
                    online[["epsilon", *_ONLINE]], "left", "epsilon", suffixes=("", "_online")
                )
            )
    if not frames:
        return []
    data = pd.concat(frames, ignore_index=True)
    data["against_online"] = data["mean"] - data["mean_online"]
    data["verdict"] = _against_online(data)
    shown = [
        {"data set": labels.dataset_short(row["dataset"]), "k": str(row["k"])}
        | {"epochs": labels.number(row["epochs"])}
        | _name(row)
        | _own(row, "ours")
        | {
            "against Online": labels.signed(row["against_online"]),
            "": row["verdict"],
        }
        for _, row in data.iterrows()
    ]
    keep = [*CELL, "metric", "unit", "status", *POINT, "mean", "std", "seeds", "runs", "diverged"]
    keep += ["grid_points", "grid_size", "noise_multiplier", "epochs", "against_online", "verdict"]
    keep += ["last_mean", "last_std", "cross_mean", "cross_std"]
    title = "Beyond the paper: further methods, controls and budgets"
    return [Table("beyond", title, data[keep], pd.DataFrame(shown), _BEYOND_NOTES)]


_ONLINE = ["mean", "std", "seeds"]


def _against_online(data: pd.DataFrame) -> list[str]:
    """A verdict for each cell beside Online's; all are judged together."""
    rows = data.to_dict("records")
    other = [
        row["status"] == "run" and row["method"] != "online" and not math.isnan(row["mean_online"])
        for row in rows
    ]
    compared = [
        Comparison(
            Sample(row["mean"], row["std"], int(row["seeds"])),
            Sample(row["mean_online"], row["std_online"], int(row["seeds_online"])),
            verdicts.MARGINS[row["dataset"]],
            is_higher_better(row["metric"]),
        )
        for row, usable in zip(rows, other, strict=True)
        if usable
    ]
    found = iter(verdicts.judge(compared))
    return [next(found) if usable else labels.NOTHING for usable in other]


def _name(row: pd.Series) -> dict[str, str]:
    return {
        "ε": labels.epsilon_text(row["epsilon"]),
        "method": labels.method_label(row["method"]),
    }


def _own(row: pd.Series, heading: str) -> dict[str, str]:
    ours = labels.spread(row["mean"], row["std"]) if row["status"] == "run" else row["status"]
    if row["status"] == "run" and row["best_diverged"]:
        ours += f" ({row['best_diverged']} of its {row['best_runs']} runs diverged)"
    return {
        "our best": labels.point_text(
            row["method"], row["learning_rate"], row["threshold"], row["quantile"]
        ),
        heading: ours,
        **_counts(row),
        "ν": labels.number(row["noise_multiplier"], ".3f"),
    }


def _counts(row: pd.Series) -> dict[str, str]:
    ran = row["status"] != "not run"
    size = "" if pd.isna(row["grid_size"]) else f" of {row['grid_size']}"
    lost = f" ({row['diverged']} of {row['runs']} runs diverged)" if ran and row["diverged"] else ""
    return {
        "seeds": str(row["seeds"]) if ran else labels.NOTHING,
        "grid points": f"{row['grid_points']}{size}{lost}" if ran else f"0{size}",
    }


def _other_rules(row: pd.Series) -> dict[str, str]:
    return {
        "last step": labels.spread(row["last_mean"], row["last_std"]),
        "cross-selection": labels.spread(row["cross_mean"], row["cross_std"]),
    }
