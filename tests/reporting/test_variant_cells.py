"""A search with a schedule or averaging is never shown, or judged, as the plain method."""

import io

import pytest
from rich.console import Console

from oso_dp.analysis import verdicts
from oso_dp.analysis.claim_tests import UNDECIDED
from oso_dp.analysis.claims import judge_claims
from oso_dp.analysis.untuned_runs import win_ranges
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.paper.tables import find_table
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.page.summary_text import agreement_text, best_method_text
from oso_dp.reporting.summary import summary_table
from oso_dp.reporting.tables.cells import cells_table, other_methods_table, paper_table

LAID = {
    "rate falling": {"schedule": "linear"},
    "averaged, 0.99": {"averaging": 0.99},
}


def fill(store, variant=None, **more):
    """Online's nine points of MNIST, three seeds; variant: its schedule or averaging."""
    said = variant or {}
    for place in range(9):
        for seed in range(3):
            value = 0.9362 - 0.001 * seed - 0.01 * abs(place - 5)
            rate = 10.0 ** (place / 2 - 2.5)
            store.add(learning_rate=rate, seed=seed, values=(value,), **said, **more)
    return store


@pytest.mark.parametrize("words", LAID)
def test_variant_named_in_report_and_summary(words, store, study, tmp_path) -> None:
    fill(store, LAID[words])
    fill(store, LAID[words], dataset="glyphs")
    made = study(store)
    named = f"Online, {words}"
    table = paper_table(made, find_table("mnist", 9))
    assert named in table.details["method"].tolist()
    sentence = f"Variants with a schedule or averaging: Online at ε = 9 ({words})."
    assert sentence in table.notes
    assert named in cells_table(made, "glyphs", 9).printed["method"].tolist()
    for dataset in ("mnist", "glyphs"):
        assert f"only {named} was run" in best_method_text(judge_cells(made, dataset, 9))
    stream = io.StringIO()
    Console(file=stream, width=120).print(summary_table(store.write(tmp_path)))
    assert stream.getvalue().count(named) == 2
    captions = [
        plan.caption for plan in every_figure(made) if plan.kind == "metric" and plan.measured
    ]
    assert captions
    assert all(caption.endswith(sentence) for caption in captions)


def test_variant_note_plain_methods_omitted(store, study) -> None:
    made = study(fill(store))
    assert not [
        line for line in paper_table(made, find_table("mnist", 9)).notes if "Variants" in line
    ]
    assert not [plan for plan in every_figure(made) if "schedule or averaging: " in plan.caption]


@pytest.mark.parametrize("variant", [None, *LAID.values()])
def test_variant_not_compared_with_paper(variant, store, study) -> None:
    made = study(fill(store, variant))
    cell = judge_cells(made, "mnist", 9).query("method == 'online' and epsilon == 9").iloc[0]
    assert cell["verdict"] == (verdicts.UNDECIDED if variant else verdicts.CONSISTENT)
    assert (cell["point_verdict"] == verdicts.UNDECIDED) == bool(variant)
    assert len(agreement_text(made)) == (variant is None)


@pytest.mark.parametrize("side", [0, 1])
def test_variant_excluded_from_claim_evidence(side: int, make_store, study) -> None:
    """A claim is undecided if the runs of one of its two methods have a schedule."""
    judged_of = {}
    for name, variant in (("plain", None), ("variant", LAID["rate falling"])):
        store = make_store()
        said = variant or {}
        for k in (5, 7, 9):
            for epsilon in (3.0, 5.0, 7.0, 9.0):
                for place in range(k):
                    for seed in range(3):
                        point = {"k": k, "epsilon": epsilon, "seed": seed}
                        point |= {"learning_rate": 10.0**place}
                        value = {"values": (0.9 + 0.001 * seed,)}
                        sides = said if side == 0 else {}, said if side == 1 else {}
                        store.add(**point, **value, **sides[0])
                        store.add(method="adam_wosm", **point, **value, **sides[1])
        rows = judge_claims(study(store)).set_index(["claim", "dataset"])
        judged_of[name] = rows.loc[("C3", "mnist")]
    assert judged_of["plain"]["verdict_best"] != UNDECIDED
    assert judged_of["variant"]["verdict_best"] == UNDECIDED
    assert "12 whose runs differ" in judged_of["variant"]["evidence"]


@pytest.mark.parametrize("variant", [None, *LAID.values()])
def test_variant_search_excluded_from_win_ranges(variant, store, study) -> None:
    """Guesses are not compared with a search that has a schedule or averaging."""
    fill(store, variant)
    fill(store, search_accounting="single", noise_multiplier=500.0)
    (row,) = win_ranges(study(store)).to_dict("records")
    assert (row["own_mean"] == row["own_mean"]) == (variant is None)


@pytest.mark.parametrize("variant", [None, *LAID.values()])
def test_variant_online_leaves_others_unranked(variant, store, study) -> None:
    fill(store, variant, dataset="glyphs")
    fill(store, dataset="glyphs", method="auto_s")
    (table,) = other_methods_table(study(store))
    row = table.printed.set_index("method").loc["AUTO-S"]
    assert (row[""] == "–") == (variant is not None)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, None),
        ({"batch_size": 200}, "Not shown: other variants of 1 cell, with another batch_size."),
        ({"momentum": 0.0, "epochs": 20}, "of 1 cell, with another momentum, epochs."),
        ({"method": "fixed_threshold", "threshold": 0.1}, None),
    ],
)
@pytest.mark.parametrize("dataset", ["mnist", "glyphs"])
def test_hidden_variants_note_names_difference(
    dataset, other, said, store, study, tmp_path
) -> None:
    """The notes name the settings in which hidden variants differ."""
    both = {"dataset": dataset, "seed": 0}
    store.add(**both)
    store.add(**both | (other or {"seed": 1}))
    made = study(store)
    shown = paper_table(made, find_table("mnist", 9)) if dataset == "mnist" else None
    stream = io.StringIO()
    Console(file=stream, width=160).print(summary_table(store.write(tmp_path)))
    for text in (
        " ".join((shown or cells_table(made, dataset, 9)).notes),
        " ".join(stream.getvalue().split()),
    ):
        assert ("Not shown" in text) == (said is not None)
        assert said is None or said in text


def test_hidden_variants_note_own_cells_only(store, study) -> None:
    for momentum in (0.0, 0.9):
        store.add(dataset="glyphs", momentum=momentum)
    store.add()
    made = study(store)
    told = cells_table(made, "glyphs", 9), paper_table(made, find_table("mnist", 9))
    assert ["Not shown" in " ".join(table.notes) for table in told] == [True, False]
