"""PATE: students beside gradient methods, costs four ways, published costs and claims."""

from oso_dp import labels
from oso_dp.analysis.pate import compare_students, judge_pate_claims, summarize_epsilons
from oso_dp.reporting.table import (
    DATASET,
    EPSILON,
    Column,
    ReportContext,
    Table,
    TableSpec,
    number,
)


def tables(context: ReportContext) -> list[Table]:
    """None without students, or without published costs."""
    study = context.study
    found = []
    if len(study.pate):
        found.append(_STUDENTS.fill(compare_students(study)))
        found.append(_EPSILONS.fill(summarize_epsilons(study.pate)))
        found.append(_CLAIMS.fill(judge_pate_claims(study)))
    if len(study.pate_published):
        found.append(_PUBLISHED.fill(study.pate_published))
    return found


_STUDENTS = TableSpec(
    "pate_students",
    "PATE: students beside gradient methods at equal epsilon",
    (
        *(DATASET, EPSILON),
        Column("approach", "approach"),
        Column("learning", "learning", lambda one: str(one).replace("_", "-")),
        Column("accuracy", lambda row: labels.format_mean_std(100 * row["mean"], 100 * row["std"])),
        Column("seeds", "seeds"),
    ),
    (
        "On the odd test examples. Teachers vote on the even ones, whose inputs are public to PATE "
        "alone. The noise of an aggregator is calibrated to epsilon, independently of the votes. "
        "Nothing was searched.",
    ),
)
_EPSILONS = TableSpec(
    "pate_epsilons",
    "PATE: what labels cost",
    (
        *(DATASET, Column("teachers", "teachers"), Column("aggregator", "aggregator"), EPSILON),
        Column(("epsilon", "RDP"), "epsilon_rdp", number(".2f")),
        Column(("epsilon", "exact"), "epsilon_exact", number(".2f")),
        Column(("epsilon", "from the votes"), "epsilon_data_dependent", number(".2f")),
        Column(("epsilon", "sanitized"), "epsilon_sanitized", number(".2f")),
        Column(("epsilon", "± of its RDP"), "sanitized_deviation", number(".2f")),
        Column(("labels", "asked"), "queries"),
        Column(("labels", "answered"), "answered", number(".0f")),
        Column(("labels", "right"), lambda row: 100 * row["label_accuracy"], number(".1f")),
        Column(("right", "a teacher"), lambda row: 100 * row["teacher_accuracy"], number(".1f")),
        Column(("right", "plurality"), lambda row: 100 * row["ensemble_accuracy"], number(".1f")),
    ),
    (
        "RDP and exact: of everything that was planned, whatever the votes are. From the votes: of "
        "what was released; a function of the private data, shown since these are public. "
        "Sanitized: what may be published of it, at order 8; noise of this standard deviation is "
        "still to be added to its RDP. Laplace noise: from the votes by moments, not sanitized.",
    ),
)
_PUBLISHED = TableSpec(
    "pate_published",
    "PATE: published costs, recomputed from the authors' votes",
    (
        Column("quantity", "quantity"),
        Column("source", "source"),
        Column("printed", "printed", number("g")),
        Column("ours", "ours", number(".4g")),
        Column("tolerance", "tolerance", number("g")),
        Column("agrees", "agrees", lambda agrees: "yes" if agrees else "no"),
        Column("remark", "remark", lambda text: "" if labels.is_missing(text) else str(text)),
    ),
)
_CLAIMS = TableSpec(
    "pate_claims",
    "PATE: claims",
    (
        Column("", "claim"),
        Column("claim", "says"),
        DATASET,
        Column("verdict", "verdict"),
        Column("our evidence", "evidence"),
    ),
)
