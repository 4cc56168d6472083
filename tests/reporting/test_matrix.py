"""The matrix on the page: signs, seeds, and a way to the evidence."""

import re

import pytest

from oso_dp.analysis import verdicts
from oso_dp.analysis.verdicts import verdict_matrix
from oso_dp.reporting.page.matrix import GLYPHS, legend, make_blocks


@pytest.fixture
def some(store, study):
    for seed in range(3):
        store.add(seed=seed, values=(0.936 + 0.001 * seed,))
    store.add(method="fixed_threshold", learning_rate=0.003162, threshold=10.0, values=(0.91,))
    return verdict_matrix(study(store))


def test_glyphs_cover_all_verdicts():
    constants = [value for name, value in vars(verdicts).items() if name.isupper()]
    words = {value for value in constants if isinstance(value, str)}
    assert words - {
        verdicts.NO_VALUE,
        verdicts.VALUE_RULE,
        verdicts.POINT_RULE,
    } == set(GLYPHS)


def test_make_blocks_cell_shows_verdict_seeds(some):
    (mnist, _, _) = make_blocks(some)
    cells = dict(mnist.lines)
    assert [cell.glyph for cell in cells["Online"]] == ["·"] * 11 + ["=3"]
    assert re.fullmatch(
        r"consistent, 3 seeds; ours − paper \+0\.08 ± \d\.\d\d %", cells["Online"][-1].hover
    )
    assert cells["FixedThreshold"][-1].glyph == "?1*"
    assert cells["FixedThreshold"][-1].link == "mnist-k9-eps9-fixed_threshold"
    assert cells["Online"][0].link == "table_11"  # k = 5 was not run: what the paper prints
    assert [k for k, _ in mnist.ks] == [5, 7, 9]


def test_make_blocks_budgets_per_dataset(some):
    digits, fashion, _ = make_blocks(some)
    assert [text for text, _ in digits.epsilons] == ["3", "5", "7", "9"] * 3
    assert [text for text, _ in fashion.epsilons] == ["1", "2", "3", "4"] * 3
    assert [start for _, start in fashion.epsilons] == [True, False, False, False] * 3


def test_legend_explains_present_glyphs_only(some):
    text = legend(some)
    assert "= consistent with the printed value" in text
    assert "? undecided" in text
    assert "worse" not in text
    assert "* The momentum was chosen to fit this cell" in text
    assert "momentum" not in legend(some[some["method"] == "online"])


def test_glyphs_distinct_with_agreement_colours():
    """Each verdict has its own glyph; only verdicts that agree with the paper are green."""
    agrees = {verdicts.CONSISTENT, verdicts.SAME, verdicts.AS_GOOD}
    open_ = {
        verdicts.UNDECIDED: "open",
        verdicts.INCOMPLETE: "open",
        verdicts.NOT_RUN: "idle",
    }
    for word, (_, look) in GLYPHS.items():
        assert look == ("yes" if word in agrees else open_.get(word, "no")), word
    signs = {word: sign for word, (sign, _) in GLYPHS.items() if word != verdicts.SAME}
    assert len(set(signs.values())) == len(signs)
    assert (signs[verdicts.BETTER], signs[verdicts.WORSE]) == ("+", "−")
