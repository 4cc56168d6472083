"""AG News and GloVe from their files."""

import csv
import gzip
import hashlib
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.data import DATASETS, ag_news, glove, prepare_dataset
from oso_dp.data.ag_news import parse_news, split_words
from oso_dp.data.arrays import load_arrays
from oso_dp.data.download import DatasetSource, SourceFile
from oso_dp.data.glove import load_vectors, parse_vectors
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


def test_ag_news_text_becomes_word_vectors(tiny):
    folder, source = tiny
    arrays, _ = ag_news.build(folder, folder, 3, "zeros", "subset", source)
    assert numbers(arrays.train_inputs) == [[1, 2, 3], [0, 0, 0]]
    assert numbers(arrays.test_inputs) == [[3, 1, 0]]
    assert arrays.train_targets.tolist() == [2, 0]
    assert arrays.test_targets.tolist() == [3]


@pytest.mark.parametrize(
    ("oov_words", "first"), [("zeros", [1, 2, 3, 0, 4]), ("skipped", [1, 2, 3, 4, 1])]
)
def test_ag_news_oov_words_option_applied(tiny, oov_words, first):
    folder, source = tiny
    arrays, provenance = ag_news.build(folder, folder, 5, oov_words, "subset", source)
    assert numbers(arrays.train_inputs) == [first, [0] * 5]
    assert provenance["known_words"] == {"train": 4 / 6, "test": 1}
    assert provenance["vectors"]["words"] == 4
    assert not provenance["vectors"]["complete"]


def test_ag_news_bad_line_precedes_checksum(tiny):
    folder, source = tiny
    (folder / "train.csv").write_bytes(TRAIN + b'"7","a","b"\n')
    with pytest.raises(OsoError, match=rf"^{folder}/train\.csv: line 3: class '7'"):
        ag_news.build(folder, folder, 15, "zeros", "subset", source)
    (folder / "train.csv").write_bytes(TRAIN.replace(b"Oil", b"Gas"))
    with pytest.raises(OsoError, match=rf"^{folder}/train\.csv: wrong file .*it was not changed"):
        ag_news.build(folder, folder, 15, "zeros", "subset", source)


@pytest.fixture(scope="module")
def partial(shared, tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "x.npz"
    provenance = prepare_dataset("ag_news_partial", path, shared / "data")
    yield load_arrays(path)[0], provenance
    path.unlink()  # 220 MB


def test_ag_news_partial_official_arrays_match(partial):
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


def test_ag_news_subset_as_whole_rejected(shared, tmp_path):
    assert DATASETS["ag_news_partial"].title == "AG News subset (n = 66,994)"
    with pytest.raises(OsoError, match=r"train\.csv\.gz: missing"):
        prepare_dataset("ag_news", tmp_path / "x.npz", shared / "data")
    for name in ("test.csv", "train_partial.csv.gz"):
        shutil.copyfile(shared / "data" / "ag_news" / name, tmp_path / name)
    (tmp_path / "train_partial.csv.gz").rename(tmp_path / "train.csv.gz")
    with pytest.raises(OsoError, match=r"train\.csv\.gz: truncated file \(15656295 of 29470338"):
        prepare_dataset("ag_news", tmp_path / "x.npz", tmp_path)


def test_ag_news_partial_never_downloaded(tmp_path, opened):
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
    ],
)
def test_prepare_dataset_invalid_option_rejected(tmp_path, dataset, options, message):
    with pytest.raises(OsoError, match=message):
        prepare_dataset(dataset, tmp_path / "x.npz", tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


GOOD = '"3","Oil at $46","Prices \\soar, ""again"""\n"1","","Peace\nin two lines"\n'
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_parse_news_rows_read_exactly():
    texts, classes = parse_news(GOOD.encode(), "x")
    assert texts == ['Oil at $46 Prices \\soar, "again"', " Peace\nin two lines"]
    assert classes.tolist() == [2, 0]


def test_split_words_keeps_letters_and_digits():
    assert split_words("MP3s: don't, 1st-rate &lt;b&gt; #39;s q3_x") == [
        *("mp3s", "don", "t", "1st", "rate", "lt", "b", "gt", "39", "s", "q3", "x")
    ]


@given(rows=st.lists(st.tuples(st.sampled_from("1234"), TEXTS, TEXTS.map(lambda t: t + "a"))))
def test_parse_news_written_rows_read_back(rows):
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    texts, classes = parse_news(written.getvalue().encode(), "x")
    assert texts == [f"{title} {description}" for _, title, description in rows]
    assert classes.tolist() == [int(row[0]) - 1 for row in rows]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"3","no description"', "2 columns; must have class, title, description"),
        ("", "0 columns"),
        ('"5","a","b"', "class '5'; must be 1 to 4"),
        ('"3","",""', "no words"),
        ('"3","a","b', "unbalanced quotes"),
        ('"3","a,"b"', "unbalanced quotes"),
    ],
)
@pytest.mark.parametrize("before", ["", GOOD])
def test_parse_news_bad_row_line_named(row, message, before):
    content = f'{before}{row}\n"1","a","b"\n'.encode()
    line = before.count("\n") + 1
    with pytest.raises(OsoError) as caught:
        parse_news(content, "folder/train.csv")
    assert str(caught.value).startswith(f"folder/train.csv: line {line}: {message}")
    assert "\n" not in str(caught.value)


def line(word, number=0.5):
    return f"{word} " + " ".join(f"{number + i / 8:g}" for i in range(50))


TEXT = "\n".join([line("the"), line("46", -1), line("oil", 2)]).encode() + b"\n"


@pytest.fixture
def official(monkeypatch):
    """Three lines in the official text's place."""
    file = SourceFile("glove.6B.50d.txt", len(TEXT), hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setattr(glove, "GLOVE_TEXT", file)


def archive(path, name="glove.6B.50d.txt", content=TEXT):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("glove.6B.100d.txt", "not this one")
        file.writestr(name, content)
    return path


def test_parse_vectors_words_read_exactly():
    read = parse_vectors(TEXT, "x")
    assert read.values.dtype == np.float32
    assert read.index == {"the": 1, "46": 2, "oil": 3}
    assert not read.values[0].any()
    np.testing.assert_array_equal(read.values[2], -1 + np.arange(50) / 8)
    np.testing.assert_array_equal(parse_vectors(TEXT[:-1], "x").values, read.values)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("a").rsplit(" ", 1)[0], "49 numbers after the word; must be 50"),
        (line("a") + " 1", "51 numbers"),
        (line("a").replace("0.5", "half", 1), "could not convert"),
        (line("a").replace("0.5", "nan", 1), "number is not finite"),
        (line("the"), "word 'the' also appears in line 1"),
        (line(""), "missing word"),
    ],
)
def test_parse_vectors_bad_line_named(bad, message):
    content = TEXT + bad.encode() + b"\n" + line("last").encode()
    with pytest.raises(OsoError) as caught:
        parse_vectors(content, "glove.txt")
    assert str(caught.value).startswith(f"glove.txt: line 4: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["", "glove"])
@pytest.mark.parametrize("form", ["txt", "txt.gz", "zip", "subset.txt", "subset.txt.gz"])
def test_load_vectors_supported_formats_read(official, tmp_path, form, folder, opened):
    (tmp_path / folder).mkdir(exist_ok=True)
    path = tmp_path / folder / (f"glove.6B.50d.{form}" if form != "zip" else "glove.6B.zip")
    if form == "zip":
        archive(path)
    else:
        path.write_bytes(gzip.compress(TEXT) if form.endswith("gz") else TEXT)
    vocabulary = "subset" if form.startswith("subset") else "complete"
    read, provenance = load_vectors(tmp_path, tmp_path / "cache", vocabulary)
    assert set(read.index) == {"the", "46", "oil"}
    assert provenance == {
        "origin": str(path),
        "sha256": hashlib.sha256(TEXT).hexdigest(),
        "words": 3,
        "complete": vocabulary == "complete",
    }
    assert opened == []


@pytest.mark.parametrize("vocabulary", ["subset", "complete"])
def test_load_vectors_other_vocabulary_rejected(official, tmp_path, vocabulary):
    other = {"subset": "glove.6B.50d.txt", "complete": "glove.6B.50d.subset.txt"}[vocabulary]
    (tmp_path / other).write_bytes(TEXT)
    with pytest.raises(OsoError, match=rf"no word vectors \({vocabulary} vocabulary\)"):
        load_vectors(tmp_path, tmp_path, vocabulary)


def test_load_vectors_truncated_file_rejected(official, tmp_path):
    cut = TEXT[: TEXT.rindex(b"oil")]
    for path in (tmp_path / "glove.6B.50d.txt", archive(tmp_path / "glove.6B.zip", content=cut)):
        if path.suffix == ".txt":
            path.write_bytes(cut)
        with pytest.raises(OsoError, match=rf"^{path}: truncated file .*6B.50d.subset.txt$"):
            load_vectors(tmp_path, tmp_path, "complete")
        path.unlink()


def test_load_vectors_empty_folder_rejected(tmp_path):
    with pytest.raises(OsoError, match=rf"^data_dir: {tmp_path}; no word vectors .*glove\.6B\.zip"):
        load_vectors(tmp_path, tmp_path, "complete")
