"""Update the marked blocks of documentation pages from the results; part of `make report`.

python -m oso_dp.reporting.update_docs README.md --results results
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.analysis.budget_strategies import is_reference, max_regret
from oso_dp.analysis.cells import count_variants
from oso_dp.analysis.claim_tests import NOT_APPLICABLE, NOT_RUN
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.result_set import ResultSet
from oso_dp.errors import OsoError
from oso_dp.exit_codes import run_command
from oso_dp.files import atomic_write, check_regular
from oso_dp.option_types import path
from oso_dp.reporting.page import summary_text
from oso_dp.reporting.table import markdown_rows
from oso_dp.reporting.tables.budget_strategies import budget_strategies_table
from oso_dp.reporting.tables.claims import AT_PAPERS_POINTS, in_short
from oso_dp.study.plan import find_plans, read_plan

_NETWORK = "with the [printed network](docs/reproduction/fashion_mnist.md)"
_LOSS = "largest loss, in margins"


def status(study: ResultSet) -> str:
    """The block `status`: a sentence on the paper's values and claims, and a table of claims."""
    claims = judge_claims(study)
    dataset = f"on {labels.dataset_short('fashion_mnist')} "
    verdict = summary_text.verdict_text(study, claims).removesuffix(".")
    verdict = verdict.replace(dataset, f"{dataset}{_NETWORK} ")
    sentence = f"{verdict} ([rule](docs/reproduction/verdicts.md))."
    table = in_short(claims, "C").drop(columns="the paper's numbers")
    return "\n\n".join([sentence, "\n".join(markdown_rows(table))])


def evidence(study: ResultSet) -> str:
    """The block `evidence`: verdict and advantage for each claim and question with runs."""
    claims = judge_claims(study)
    ran = claims[claims["verdict_best"] != NOT_RUN]
    rows = pd.DataFrame(
        {
            "": ran["claim"],
            "data set": ran["dataset"].map(labels.dataset_short),
            "verdict": [_verdict(row) for row in ran.to_dict("records")],
            "evidence": ran["evidence"].map(_numbers),
        }
    )
    return "\n".join(markdown_rows(rows))


def _verdict(row: dict) -> str:
    """The verdict under the paper's checkpoint rule, and under the others where it differs."""
    words = [row["verdict_best"]]
    if (row["at_paper"] or 0) > 0:
        words[0] += f" {AT_PAPERS_POINTS}"
    if "equivalent within M" in row["evidence"]:
        words[0] += " (equivalent within M)"
    for rule, name in (("last", "at the last step"), ("cross", "by cross-selection")):
        if row[f"verdict_{rule}"] not in (row["verdict_best"], NOT_APPLICABLE):
            words.append(f"{name} {row[f'verdict_{rule}']}")
    return "; ".join(words)


def _numbers(evidence: str) -> str:
    """Shorten a comparison to its advantage and grids; the report has the details."""
    if ", M = " in evidence:
        clauses = [text.split("; ")[0] for text in evidence.split("; and ")]
        if len(clauses) == 1:
            clauses = [re.sub(r"^.* over [^+−\d]*", "", clauses[0])]
        evidence = "; ".join(re.sub(r", M = [^,]*| \(\d+ at [^)]*\)", "", c) for c in clauses)
    return re.sub(r", \d+ turns each.*|, from the rows.*", "", evidence)


def counts(study: ResultSet) -> str:
    """The block `counts`: runs of each data set, k, search accounting and precision."""
    rows = []
    keys = ["dataset", "k", "search_accounting", "precision"]
    for (dataset, k, search_accounting, precision), group in count_variants(study).groupby(
        keys, sort=False
    ):
        budgets = sorted(group["epsilon"].dropna().unique())
        rows.append(
            {
                "data set": labels.dataset_short(dataset),
                "k": k,
                "search": search_accounting.replace("_", " "),
                "precision": precision,
                "methods": group["method"].nunique(),
                "ε": ", ".join(map(labels.format_budget, budgets)) or labels.DASH,
                "seeds": _range(group["seeds"]),
                "runs": f"{group['runs'].sum():,}",
            }
        )
    return "\n".join(markdown_rows(pd.DataFrame(rows)))


def budgets(study: ResultSet) -> str:
    """The block `budgets`: budget strategies for each data set, and the defaults' regret.

    Incomplete grids are left out, since their best point is unknown, except for the reference.
    """
    table = budget_strategies_table(study)
    reference = [is_reference(row) for row in table.data.to_dict("records")]
    printed = table.printed[table.data["whole"].astype(bool) | np.array(reference, dtype=bool)]
    blocks = []
    for dataset, rows in printed.groupby("data set", sort=False):
        cells = rows["value"] + " (" + rows["above Online's search"] + ")"
        seen = rows["chosen by"].str.endswith("†").map({True: " †", False: ""})
        wide = rows.assign(
            cell=cells, strategy=rows["strategy"] + ": " + rows["method"] + seen
        ).pivot_table(index="strategy", columns="ε", values="cell", aggfunc="first", sort=False)
        wide = wide.fillna("–").rename(columns=lambda epsilon: f"ε = {epsilon}").reset_index()
        wide = wide.rename(columns={"strategy": f"{dataset}: value (gain over Online's search)"})
        blocks.append("\n".join(markdown_rows(wide)))
    return "\n\n".join([*blocks, *_surest(study)])


def _surest(study: ResultSet) -> list[str]:
    """The defaults by their maximum regret; empty without defaults."""
    losses = max_regret(study)
    if losses.empty:
        return []
    rows = pd.DataFrame(
        {
            "default": labels.variant_method_label(row["method"], row["variant"]),
            _LOSS: f"{row['loss']:.1f}",
            "where": f"{labels.dataset_short(row['dataset'])}, ε = {row['epsilon']:g}",
        }
        for row in losses.to_dict("records")
    )
    places = int(losses["places"].iloc[0])
    text = (
        "Each default's largest loss against the best default, in units of the data set's "
        f"[margin](../reproduction/verdicts.md#margins), over the {places} pairs of data set and "
        "ε at which a default has three seeds:"
    )
    return [text, "\n".join(markdown_rows(rows))]


def _range(numbers: pd.Series) -> str:
    low, high = numbers.min(), numbers.max()
    return f"{low}" if low == high else f"{low} to {high}"


BLOCKS: dict[str, Callable[[ResultSet], str]] = {
    "status": status,
    "evidence": evidence,
    "counts": counts,
    "budgets": budgets,
}


def marks(name: str) -> tuple[str, str]:
    """The lines before and after the block of this name."""
    return (
        f"<!-- {name}: `make report` writes these lines from results/ -->",
        f"<!-- end of the {name} -->",
    )


def write_blocks(page: Path, study: ResultSet) -> None:
    """Replace all marked blocks; raises OsoError for a missing or repeated mark, or no block."""
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
        raise OsoError(
            f"{page}: contains no marked block; needs the lines "
            f"{' and '.join(map(repr, marks('status')))}"
        )
    with atomic_write(page) as file:
        file.write(text.encode())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=path)
    parser.add_argument("--results", type=path, required=True)
    options = parser.parse_args(arguments)
    plans = [read_plan(file) for file in find_plans(options.results)]
    study = read_result_set(options.results, plans)
    for page in options.pages:
        write_blocks(page, study)


if __name__ == "__main__":
    sys.exit(run_command(lambda: main(sys.argv[1:])))
