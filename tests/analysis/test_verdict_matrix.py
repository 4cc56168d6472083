"""The matrix says of each cell what its table says, with the seeds that stand behind it."""

import numpy as np
import pytest
from scipy.stats import t

from oso_dp.analysis import verdicts
from oso_dp.analysis.verdicts import MOMENTUM_CALIBRATION_CELL, judge_cells, verdict_matrix
from oso_dp.paper.tables import paper_results, paper_tables

KEY = ["dataset", "k", "epsilon", "method"]


def row(matrix, dataset="mnist", k=9, epsilon=9.0, method="online"):
    found = matrix.set_index(KEY).loc[(dataset, k, epsilon, method)]
    assert found.ndim == 1
    return found


def test_verdict_matrix_lists_private_cells_once(store, study):
    store.add(dataset="glyphs", k=2)
    matrix = verdict_matrix(study(store))
    paper = paper_results().dropna(subset="epsilon")
    assert sorted(matrix[KEY].itertuples(index=False, name=None)) == sorted(
        paper[KEY].itertuples(index=False, name=None)
    )
    assert set(matrix["verdict"]) == {verdicts.NOT_RUN}
    assert set(matrix["seeds"]) == {0}


def test_verdict_matrix_matches_judge_cells(store, study):
    for seed in range(3):
        store.add(seed=seed, values=(0.936 + 0.001 * seed,))  # the paper: 93.62 ± 0.91
        store.add(seed=seed, method="adam_wosm", threshold=31.6, values=(0.80 + 0.001 * seed,))
    store.add(method="fixed_quantile", threshold=0.1, quantile=0.7, values=(0.91,))
    store.add(k=7, values=(0.9,))  # a table without values: the point is judged
    of = study(store)
    matrix = verdict_matrix(of)
    assert row(matrix)["verdict"] == verdicts.CONSISTENT
    assert row(matrix)["seeds"] == 3
    assert row(matrix, method="adam_wosm")["verdict"] == verdicts.WORSE
    assert row(matrix, method="fixed_quantile")["verdict"] == verdicts.UNDECIDED
    assert row(matrix, method="fixed_quantile")["seeds"] == 1
    assert row(matrix, k=7)["verdict"] == verdicts.INCOMPLETE
    for table in paper_tables():
        cells = judge_cells(of, table.dataset, table.k).dropna(subset="epsilon")
        mine = matrix[matrix["table"] == table.number].set_index(["epsilon", "method"])
        for cell in cells.itertuples():
            said = mine.loc[(cell.epsilon, cell.method), "verdict"]
            assert said in (cell.verdict, cell.point_verdict)


def test_verdict_matrix_difference_half_matches_welch(store, study):
    ours = np.array([0.930, 0.936, 0.945])
    for seed, value in enumerate(ours):
        store.add(seed=seed, values=(value,))
    found = row(verdict_matrix(study(store)))
    variances = np.array([(100 * ours).var(ddof=1) / 3, 0.91**2 / 5])
    freedom = variances.sum() ** 2 / (variances**2 / [2, 4]).sum()
    half = t.ppf(0.975, freedom) * np.sqrt(variances.sum())
    assert found["difference"] == pytest.approx(100 * ours.mean() - 93.62)
    assert found["difference_half"] == pytest.approx(half)


def test_verdict_matrix_marks_momentum_calibration_cell(store, study):
    store.add()
    matrix = verdict_matrix(study(store))
    (marked,) = matrix[matrix["chose_momentum"]][KEY].itertuples(index=False, name=None)
    assert marked == MOMENTUM_CALIBRATION_CELL == ("mnist", 9, 9.0, "fixed_threshold")
