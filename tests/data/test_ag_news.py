"""AG News: the first words' vectors, zeros where there is none; the part is not the whole."""

import dataclasses
import gzip
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from oso_dp.data import DATASETS, ag_news, ag_news_partial, prepare_dataset, sources
from oso_dp.data.arrays import load_arrays
from oso_dp.data.download import DatasetSource, SourceFile
from oso_dp.errors import OsoError

WORDS = ["oil", "rises", "the", "46"]
VECTORS = "\n".join(f"{word} " + f"{i} " * 49 + f"{i}" for i, word in enumerate(WORDS, 1))
TRAIN = b'"3","Oil rises","the Zzyzx 46 oil"\n"1","","Zzyzx"\n'
TEST = b'"4","THE","oil"\n'


@pytest.fixture
def tiny(tmp_path) -> tuple[Path, DatasetSource]:
    """A folder with two training texts, one test text and four vectors; and its source."""
    files = []
    for name, content in {"train.csv": TRAIN, "test.csv": TEST}.items():
        (tmp_path / name).write_bytes(content)
        files.append(SourceFile(name, len(content), hashlib.sha256(content).hexdigest()))
    (tmp_path / "glove.6B.50d.subset.txt").write_text(VECTORS)
    return tmp_path, DatasetSource("ag_news", tuple(files), ())


def numbers(inputs: np.ndarray) -> list[list[int]]:
    """Each text as its words' numbers, where a vector is a number 50 times; 0 for zeros."""
    split = inputs.reshape(len(inputs), -1, 50)
    assert (split == split[..., :1]).all()
    return split[..., 0].astype(int).tolist()


def test_each_text_is_the_vectors_of_its_first_words(tiny):
    folder, source = tiny
    arrays, _ = ag_news.build(folder, folder, words=3, vocabulary="subset", source=source)
    assert numbers(arrays.train_inputs) == [[1, 2, 3], [0, 0, 0]]
    assert numbers(arrays.test_inputs) == [[3, 1, 0]]
    assert arrays.train_targets.tolist() == [2, 0]
    assert arrays.test_targets.tolist() == [3]


@pytest.mark.parametrize(
    ("oov_words", "first"), [("zeros", [1, 2, 3, 0, 4]), ("skipped", [1, 2, 3, 4, 1])]
)
def test_a_word_without_a_vector_keeps_its_place_or_not(tiny, oov_words, first):
    folder, source = tiny
    arrays, provenance = ag_news.build(folder, folder, 5, oov_words, "subset", source)
    assert numbers(arrays.train_inputs) == [first, [0] * 5]
    assert provenance["known_words"] == {"train": 4 / 6, "test": 1}
    assert provenance["vectors"]["words"] == 4
    assert not provenance["vectors"]["complete"]


@pytest.mark.parametrize(
    ("oov_words", "first"), [("zeros", [0, 3, 0, 1, 4]), ("skipped", [3, 1, 4, 0, 0])]
)
def test_an_unknown_word_of_a_test_text_is_treated_alike(tiny, oov_words, first):
    folder, (source, *_) = tiny[0], (tiny[1],)
    content = b'"4","Zzyzx THE","Qqq oil 46"\n'
    (folder / "test.csv").write_bytes(content)
    file = SourceFile("test.csv", len(content), hashlib.sha256(content).hexdigest())
    changed = dataclasses.replace(source, files=(source.files[0], file))
    arrays, _ = ag_news.build(folder, folder, 5, oov_words, "subset", changed)
    assert numbers(arrays.test_inputs) == [first]


def test_a_bad_line_is_named_before_the_checksum_speaks(tiny):
    folder, source = tiny
    (folder / "train.csv").write_bytes(TRAIN + b'"7","a","b"\n')
    with pytest.raises(OsoError, match=rf"^{folder}/train\.csv: line 3: class '7'"):
        ag_news.build(folder, folder, source=source)
    (folder / "train.csv").write_bytes(TRAIN.replace(b"Oil", b"Gas"))
    with pytest.raises(OsoError, match=rf"^{folder}/train\.csv: wrong file .*it was not changed"):
        ag_news.build(folder, folder, source=source)


@pytest.fixture(scope="module")
def partial(shared, tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "x.npz"
    provenance = prepare_dataset("ag_news_partial", path, shared / "data")
    yield load_arrays(path)[0], provenance
    path.unlink()  # 220 MB


def test_the_part_is_prepared(partial):
    arrays, provenance = partial
    assert arrays.train_inputs.shape == (66_994, 750)
    assert np.bincount(arrays.train_targets).tolist() == [17155, 16352, 16326, 17161]
    assert np.bincount(arrays.test_targets).tolist() == [1900] * 4
    assert provenance["preparation"] == {"words": 15, "oov_words": "zeros"}
    # Of every number of it, as the stored runs had them.
    assert arrays.digest.startswith("e7a0622c9986a46579df29c997ac6628")
    known = provenance["known_words"]
    assert known["test"] == pytest.approx(0.8841744225826542, abs=1e-12)
    assert known["train"] == pytest.approx(0.8942953070267611, abs=1e-12)
    # Whoever knows the words of the texts can tell the class.
    means = [arrays.train_inputs[arrays.train_targets == c].mean(axis=0) for c in range(4)]
    nearest = np.argmin([np.square(arrays.test_inputs - mean).sum(axis=1) for mean in means], 0)
    assert (nearest == arrays.test_targets).mean() > 0.5


@pytest.mark.parametrize("words", [15, 25])
@pytest.mark.parametrize("oov_words", ["zeros", "skipped"])
@pytest.mark.parametrize("vocabulary", ["subset", "complete"])
def test_the_part_is_prepared_as_it_is_asked_for(
    words, oov_words, vocabulary, monkeypatch, tmp_path
):
    """The file says so: other inputs would pass for these."""
    monkeypatch.setattr(ag_news, "build", lambda *asked: asked)
    made = ag_news_partial.build(tmp_path, tmp_path / "cache", words, oov_words, vocabulary)
    assert made == (
        *(tmp_path, tmp_path / "cache", words, oov_words, vocabulary),
        sources.AG_NEWS_PARTIAL,
    )


def test_the_part_never_passes_for_the_whole(shared, tmp_path):
    assert DATASETS["ag_news_partial"].title == "AG News partial (n = 66,994)"
    with pytest.raises(OsoError, match=r"train\.csv\.gz: missing"):
        prepare_dataset("ag_news", tmp_path / "x.npz", shared / "data")
    for name in ("test.csv", "train_partial.csv.gz"):
        shutil.copyfile(shared / "data" / "ag_news" / name, tmp_path / name)
    (tmp_path / "train_partial.csv.gz").rename(tmp_path / "train.csv.gz")
    with pytest.raises(OsoError, match=r"train\.csv\.gz: truncated file \(15656295 of 29470338"):
        prepare_dataset("ag_news", tmp_path / "x.npz", tmp_path)


def test_the_part_is_never_downloaded(tmp_path, opened):
    with pytest.raises(OsoError, match=r"cannot download train_partial.* .no mirror.*data_dir"):
        prepare_dataset("ag_news_partial", tmp_path / "x.npz")
    with pytest.raises(OsoError, match=r"^data_dir: .*add train_partial\.csv\.gz.*without .gz"):
        prepare_dataset("ag_news_partial", tmp_path / "x.npz", tmp_path)
    assert opened == []


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ("ag_news", {"words": 30}, "words: 30; must be one of 15, 25 for ag_news"),
        ("ag_news", {"oov_words": "mean"}, "oov_words: 'mean'; .* zeros, skipped"),
        ("mnist", {"words": 15}, "'mnist': words, oov_words and vocabulary are for text only"),
        (
            "glyphs",
            {"oov_words": "zeros"},
            "'glyphs': words, oov_words and vocabulary are for text only",
        ),
        ("ag_news", {"vocabulary": "all"}, "vocabulary: 'all'; must be one of complete,"),
        (
            "mnist",
            {"vocabulary": "complete"},
            "'mnist': words, oov_words and vocabulary are for text only",
        ),
    ],
)
def test_a_way_of_preparing_that_there_is_not_is_refused(tmp_path, dataset, options, message):
    with pytest.raises(OsoError, match=message):
        prepare_dataset(dataset, tmp_path / "x.npz", tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_more_words_make_longer_inputs(tiny, tmp_path, monkeypatch):
    folder, source = tiny
    info = DATASETS["ag_news"]
    small = {"examples": 2, "test_examples": 1}
    monkeypatch.setitem(DATASETS, "ag_news", type(info)(**{**vars(info), **small}))
    monkeypatch.setattr(ag_news.build, "__defaults__", (*ag_news.build.__defaults__[:-1], source))
    for words in (None, 15, 25):
        made = prepare_dataset(
            "ag_news", tmp_path / "x.npz", folder, words=words, vocabulary="subset"
        )
        arrays, provenance = load_arrays(tmp_path / "x.npz")
        assert made == provenance
        assert arrays.train_inputs.shape == (2, 50 * (words or 15))
        assert provenance["preparation"]["words"] == (words or 15)


def test_gzipped_csv_is_as_good(tiny):
    folder, source = tiny
    (folder / "test.csv").unlink()
    (folder / "test.csv.gz").write_bytes(gzip.compress(TEST))
    arrays, _ = ag_news.build(folder, folder, 2, vocabulary="subset", source=source)
    assert numbers(arrays.test_inputs) == [[3, 1]]
