"""Each way of preparing a data set has a file of its own, and is not taken for another."""

import pytest

from oso_dp.study.config import parse_config
from oso_dp.study.expand import cohorts


@pytest.mark.parametrize(
    ("model", "unknown_words", "words", "file"),
    [
        ("bag_of_words", "zeros", 15, "ag_news.npz"),
        ("bag_of_words_25", "zeros", 25, "ag_news-25.npz"),
        ("bag_of_words", "skipped", 15, "ag_news-skipped.npz"),
        ("bag_of_words_25", "skipped", 25, "ag_news-25-skipped.npz"),
    ],
)
def test_texts_are_prepared_as_the_model_and_the_configuration_say(
    base, model, unknown_words, words, file
) -> None:
    section = {"model": model, "unknown_words": unknown_words}
    base["datasets"] = {"ag_news": {**section, "epsilons": [3], "seconds_per_step": 1}}
    for cohort in cohorts(parse_config(base, "x")):
        assert cohort.preparation == {"words": words, "unknown_words": unknown_words}
        assert cohort.data_file == file


def test_images_are_prepared_in_one_way(base) -> None:
    cohort = cohorts(parse_config(base, "x"))[0]
    assert (cohort.preparation, cohort.data_file) == ({}, "mnist.npz")
