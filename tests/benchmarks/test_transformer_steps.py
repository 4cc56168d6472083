"""The small transformer on words: its step beside Opacus's, and its training."""

import csv

import pytest
import torch

CLASSES = 4


@pytest.fixture
def module(repo, monkeypatch):
    monkeypatch.syspath_prepend(str(repo / "benchmarks"))
    monkeypatch.setenv("PYTHONPATH", str(repo / "benchmarks"))  # of its processes
    import transformer_steps

    return transformer_steps


@pytest.fixture
def texts(module):
    """Forty made-up texts whose first word is their class; the rest is padding."""
    import text_transformer

    classes = torch.arange(40) % CLASSES
    words = torch.full((40, text_transformer.LENGTH), text_transformer.PADDING)
    words[:, 0] = classes + 2
    return text_transformer.Texts(words, classes, words, classes)


@pytest.mark.nightly
def test_a_row_for_each_competitor_with_time_and_memory(
    module, texts, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(module, "load_texts", lambda folder: texts)
    path = tmp_path / "transformer.csv"
    options = ["--data", "none", "--batch-size", "8", "--turns", "2", "--threads", "1"]
    assert module.main([*options, "--output", str(path)]) == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["competitor"] for row in rows] == ["sgd", "opacus_hooks", "opacus_ghost", "online"]
    plain = float(rows[0]["seconds_per_step"])
    for row in rows:
        assert 0 < float(row["lower_quartile"]) <= float(row["seconds_per_step"])
        assert float(row["times_sgd"]) == pytest.approx(
            float(row["seconds_per_step"]) / plain, rel=0.05
        )
        assert (row["steps"], row["batch_size"], row["threads"]) == ("2", "8", "1")
    assert capsys.readouterr().out.count("\n") == len(rows) + 2
