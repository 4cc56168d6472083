"""The lines that `oso recommend` knows: `analysis.one_budget`, as the package carries it along."""

import csv
import io
import math
from typing import Any

from oso_dp import labels
from oso_dp.analysis.laid_over import laid_over
from oso_dp.analysis.one_budget import DEFAULT, WAYS, is_reference, ways
from oso_dp.analysis.study import Study
from oso_dp.analysis.verdicts import margin_near
from oso_dp.choosing.known import COLUMNS
from oso_dp.data.catalogue import DATASETS
from oso_dp.metrics import sign
from oso_dp.models import build_model, parameter_count
from oso_dp.study.config import MODELS
from oso_dp.study.defaults import DEFAULTS


def measured_lines(study: Study) -> str:
    """The file's text: whole ways on the catalogue's data, with a value and with a gain."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in ways(study).to_dict("records"):
        known = row["dataset"] in DATASETS
        itself = is_reference(row)
        numbers = (row["mean"], row["std"], *(() if itself else (row["gain"], row["gain_half"])))
        if known and row["whole"] and not any(map(math.isnan, numbers)):
            writer.writerow(_line(row, itself))
    return out.getvalue()


def _line(row: dict[str, Any], itself: bool) -> dict[str, Any]:
    info = DATASETS[row["dataset"]]
    reference = row["mean"] if itself else row["mean"] - sign(row["metric"]) * row["gain"]
    model = next(name for name, fits in MODELS.items() if fits == (info.input_shape, info.metric))
    return {
        "dataset": labels.dataset_short(row["dataset"]),
        "examples": info.examples,
        "parameters": parameter_count(build_model(model)),
        "epsilon": row["epsilon"],
        "selection": row["way"],
        "way": WAYS[row["way"]],
        "method": labels.method_label(row["method"]),
        "laid": row["laid"],
        **{name: "" if labels.missing(row[name]) else row[name] for name in _OF_SOME},
        "start": _start(row),
        "chosen": row["chosen"],
        "seen": bool(row["seen"]),
        "runs": int(row["runs"]),
        "metric": labels.metric_label(row["metric"]),
        "mean": f"{row['mean']:.6g}",
        "std": f"{row['std']:.6g}",
        "seeds": int(row["seeds"]),
        "reference": itself,
        "gain": "nan" if itself else f"{row['gain']:.6g}",
        "gain_half": "nan" if itself else f"{row['gain_half']:.6g}",
        "margin": margin_near(row["dataset"], reference),
    }


_OF_SOME = ("distribution", "trial_shares")  # of some ways alone


def _start(row: dict[str, Any]) -> str:
    """Where a default starts from, as an argument says it."""
    if row["way"] != DEFAULT:
        return ""
    for default in DEFAULTS:
        if (default.method, laid_over(default.laid)) == (row["method"], row["laid"]):
            return ", ".join(f"{name} = {value:g}" for name, value in default.point.items())
    return ""
