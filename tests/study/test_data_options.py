"""Each way of preparing a data set has a file of its own, and is not taken for another."""

import pytest

from oso_dp.study.cohort import make_run
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts


@pytest.mark.parametrize(
    ("model", "oov_words", "words", "file"),
    [
        ("bag_of_words", "zeros", 15, "ag_news.npz"),
        ("bag_of_words_25", "zeros", 25, "ag_news-25.npz"),
        ("bag_of_words", "skipped", 15, "ag_news-skipped.npz"),
        ("bag_of_words_25", "skipped", 25, "ag_news-25-skipped.npz"),
    ],
)
def test_texts_are_prepared_as_the_model_and_the_configuration_say(
    base, model, oov_words, words, file
) -> None:
    section = {"model": model, "oov_words": oov_words}
    base["datasets"] = {"ag_news": {**section, "epsilons": [3], "seconds_per_step": 1}}
    for cohort in make_cohorts(parse_config(base, "x")):
        assert cohort.preparation == {"words": words, "oov_words": oov_words}
        assert cohort.data_file == file


@pytest.mark.parametrize(
    ("dataset", "default", "other"),
    [("ag_news", "complete", "subset"), ("ag_news_partial", "subset", "complete")],
)
def test_two_vocabularies_share_no_run(base, dataset, default, other) -> None:
    def planned(**chosen):
        section = {"model": "bag_of_words", "epsilons": [3], "seconds_per_step": 1, **chosen}
        return make_cohorts(parse_config({**base, "datasets": {dataset: section}}, "x"))

    implied, named, changed = planned(), planned(vocabulary=default), planned(vocabulary=other)
    assert named == implied
    assert {cohort.data_file for cohort in implied} == {f"{dataset}.npz"}
    assert {cohort.data_file for cohort in changed} == {f"{dataset}-{other}.npz"}
    assert {cohort.preparation["vocabulary"] for cohort in changed} == {other}
    runs = [{run.run_id for cohort in study for run in cohort.runs} for study in (named, changed)]
    assert len(runs[0]) == len(runs[1])
    assert runs[0].isdisjoint(runs[1])
    for cohort in changed:
        row = {**cohort.columns, **vars(cohort.runs[0])}
        again, run = make_run({**row, "noise_multiplier": 2.0 if cohort.is_private else None})
        assert (again.vocabulary, run) == (other, cohort.runs[0])
