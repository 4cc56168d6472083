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


def _accuracy(label: str, column: str) -> Column:
    return Column(("accuracy (%)", label), lambda row: 100 * row[column], number(".1f"))


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
        "On the test examples with odd index. Teachers vote on those with even index, whose inputs "
        "are public to PATE alone. The noise is calibrated to the data-independent epsilon. All "
        "methods are untuned.",
    ),
)
_EPSILONS = TableSpec(
    "pate_epsilons",
    "PATE: epsilon of the labels",
    (
        *(DATASET, Column("teachers", "teachers"), Column("aggregator", "aggregator"), EPSILON),
        Column(("epsilon", "RDP"), "epsilon_rdp", number(".2f")),
        Column(("epsilon", "PLD"), "epsilon_exact", number(".2f")),
        Column(("epsilon", "data-dependent"), "epsilon_data_dependent", number(".2f")),
        Column(("epsilon", "sanitized"), "epsilon_sanitized", number(".2f")),
        Column(("epsilon", "std of its noise"), "sanitized_deviation", number(".2f")),
        Column(("labels", "asked"), "queries"),
        Column(("labels", "answered"), "answered", number(".0f")),
        _accuracy("labels", "label_accuracy"),
        _accuracy("mean teacher", "teacher_accuracy"),
        _accuracy("plurality vote", "ensemble_accuracy"),
    ),
    (
        "RDP and PLD cover the plan, whatever the votes are. The data-dependent epsilon covers all "
        "comparisons and the answers that were given; it is shown because the data are public. The "
        "sanitized one has order 8, beta 0.02 and noise 4; its noise is not yet added to its RDP. "
        "LNMax has RDP and log moments alone; `stable` has RDP alone.",
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
