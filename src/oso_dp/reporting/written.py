"""What `make report` writes into pages of this repository, from `results/` alone.

python -m oso_dp.reporting.written README.md docs/findings.md results/README.md --results results
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.claims import judged
from oso_dp.analysis.coverage import variants
from oso_dp.analysis.evidence import NOT_RUN
from oso_dp.analysis.load import read_study
from oso_dp.analysis.study import Study
from oso_dp.analysis.surest_default import greatest_losses
from oso_dp.analysis.verdict_matrix import verdict_matrix
from oso_dp.errors import OsoError
from oso_dp.exits import ended
from oso_dp.files import atomic_write, check_regular
from oso_dp.option_types import path
from oso_dp.reporting.page import headline, matrix
from oso_dp.reporting.table import markdown_rows
from oso_dp.reporting.tables.claims import in_short
from oso_dp.reporting.tables.one_budget import one_budget_table
from oso_dp.study.plan import plans_of

_WORDS = (
    "In brackets: the number of our seeds. Consistent: within the data set's margin of the paper's "
    "value, as far as the seeds show; better or worse: significantly different; undecided: "
    "neither, or fewer than three seeds ([the rule](docs/verdicts.md)). “At the paper's points”: "
    "whole grids did not run, and ours may have better points. Fashion-MNIST ran with the printed "
    "network, which seems not to be [the paper's](docs/fashion-mnist.md)."
)
_ALONE = "What the paper does not have (leads are not corrected for their number):"


def status(study: Study) -> str:
    """The verdict, the claims and the matrix, as Markdown."""
    claims = judged(study)
    cells = verdict_matrix(study)
    alone = headline.ours_alone(study)
    blocks = [
        f"**{headline.verdict(study, claims)}**",
        headline.scope(study),
        "\n".join(markdown_rows(in_short(claims, "C"))),
        "\n".join(matrix.markdown(cells)),
        " ".join([_WORDS, *matrix.momentum(cells)]),
        *([_ALONE, "\n".join(f"- {x}" for x in alone)] if alone else []),
    ]
    return "\n\n".join(blocks)


def evidence(study: Study) -> str:
    """Each claim and question that anything was run for, with what its verdict rests on."""
    claims = judged(study)
    ran = claims[claims["verdict_best"] != NOT_RUN]
    rows = pd.DataFrame(
        {
            "": ran["claim"],
            "data set": ran["dataset"].map(labels.dataset_short),
            "ours": ran["verdict_best"],
            "at the last step": ran["verdict_last"],
            "on one half of the test set, chosen on the other": ran["verdict_cross"],
            "evidence": ran["evidence"],
        }
    )
    return "\n".join(markdown_rows(rows))


def counts(study: Study) -> str:
    """How many runs there are of what."""
    rows = []
    keys = ["dataset", "k", "method", "selection", "precision"]
    for key, group in variants(study).groupby(keys, sort=False):
        dataset, k, method, selection, precision = key
        cells = [
            f"{labels.epsilon_text(epsilon)}: {cell['runs'].sum()} ({_range(cell['seeds'])})"
            for epsilon, cell in group.groupby("epsilon", sort=False, dropna=False)
        ]
        rows.append(
            {
                "data set": labels.dataset_short(dataset),
                "k": k,
                "method": labels.method_label(method),
                "search": selection.replace("_", " "),
                "precision": precision,
                "ε: runs (seeds)": ", ".join(cells),
            }
        )
    return "\n".join(markdown_rows(pd.DataFrame(rows)))


def budgets(study: Study) -> str:
    """Each way to spend one budget that was measured: its value, its gain; the surest default."""
    printed = one_budget_table(study).printed
    blocks = []
    for dataset, rows in printed.groupby("data set", sort=False):
        cells = rows["value"] + " (" + rows["above Online's search"] + ")"
        seen = rows["chosen by"].str.endswith("†").map({True: " †", False: ""})
        table = rows.assign(cell=cells, way=rows["way"] + ": " + rows["method"] + seen).pivot_table(
            index="way", columns="ε", values="cell", aggfunc="first", sort=False
        )
        table = table.fillna("–").rename(columns=lambda epsilon: f"ε = {epsilon}").reset_index()
        table = table.rename(columns={"way": f"{dataset}: value (gain over Online's search)"})
        blocks.append("\n".join(markdown_rows(table)))
    return "\n\n".join([*blocks, *_surest(study)])


def _surest(study: Study) -> list[str]:
    """Which default loses least where it loses most, and what the others lose; None without."""
    losses = greatest_losses(study)
    if losses.empty:
        return []
    said = [
        f"{labels.laid_label(row['method'], row['laid'])} {row['loss']:.1f} "
        f"({labels.dataset_short(row['dataset'])}, ε = {row['epsilon']:g})"
        for row in losses.to_dict("records")
    ]
    first, others = said[0], said[1:]
    places = int(losses["places"].iloc[0])
    text = (
        f"The default that loses least where it loses most, of those that were run at all {places} "
        "pairs of data set and ε at which any was, with three seeds: in units of the difference "
        f"that matters, and against the best default there, {first}"
    )
    return [text + (f"; then {', '.join(others)}." if others else ".")]


def _range(numbers: pd.Series) -> str:
    low, high = numbers.min(), numbers.max()
    return f"{low}" if low == high else f"{low} to {high}"


BLOCKS: dict[str, Callable[[Study], str]] = {
    "status": status,
    "evidence": evidence,
    "counts": counts,
    "budgets": budgets,
}


def marks(name: str) -> tuple[str, str]:
    """The lines between which a block of this name stands."""
    return (
        f"<!-- {name}: `make report` writes these lines from results/ -->",
        f"<!-- end of the {name} -->",
    )


def write_blocks(page: Path, study: Study) -> None:
    """Replace what stands between marks; OsoError where a mark lacks its partner, or all do."""
    check_regular(page)
    text = page.read_text(encoding="utf-8")
    written = 0
    for name, make in BLOCKS.items():
        begin, end = marks(name)
        if (text.count(begin), text.count(end)) == (0, 0):
            continue
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise OsoError(f"{page}: needs the lines {begin!r} and {end!r}, once each, in order")
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{make(study)}\n\n{end}{after}"
        written += 1
    if not written:
        raise OsoError(f"{page}: needs the lines {' and '.join(map(repr, marks('status')))}")
    with atomic_write(page) as file:
        file.write(text.encode())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=path)
    parser.add_argument("--results", type=path, required=True)
    options = parser.parse_args(arguments)
    study = read_study(options.results, plans_of(options.results, None))
    for page in options.pages:
        write_blocks(page, study)


if __name__ == "__main__":
    sys.exit(ended(lambda: main(sys.argv[1:])))
