"""Word vectors: from the text, its archive or a subset; a broken line is named, none dropped."""

import gzip
import hashlib
import zipfile

import numpy as np
import pytest

from oso_dp.data import glove
from oso_dp.data.download import DatasetSource, SourceFile
from oso_dp.data.glove import load_vectors, parse_vectors
from oso_dp.errors import OsoError

from . import server
from .server import serving


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


def test_each_word_finds_its_numbers_and_row_0_is_zero():
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
        (line("a") + " " + line("b"), "101 numbers"),
        ("400000 50", "1 numbers"),
        ("", "0 numbers"),
        (line("a").replace("0.5", "half", 1), "could not convert"),
        (line("a").replace("0.5", "nan", 1), "number is not finite"),
        (line("the"), "word 'the' also appears in line 1"),
        (line(""), "missing word"),
    ],
)
def test_a_broken_line_is_named(bad, message):
    content = TEXT + bad.encode() + b"\n" + line("last").encode()
    with pytest.raises(OsoError) as caught:
        parse_vectors(content, "glove.txt")
    assert str(caught.value).startswith(f"glove.txt: line 4: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_another_encoding_is_named(encoding):
    text = (line("señor") + "\n").encode(encoding)
    with pytest.raises(OsoError, match=r"^x: line 1: (not UTF-8|could not convert|\d+ numbers)"):
        parse_vectors(text, "x")


def test_an_empty_file_is_named():
    with pytest.raises(OsoError, match=r"^x: empty; must have lines of a word and 50 numbers"):
        parse_vectors(b"", "x")


@pytest.mark.parametrize("folder", ["", "glove"])
@pytest.mark.parametrize("form", ["txt", "txt.gz", "zip", "subset.txt", "subset.txt.gz"])
def test_every_form_in_every_place(official, tmp_path, form, folder, opened):
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


@pytest.mark.parametrize("folder", ["", "glove"])
def test_each_vocabulary_is_read_from_its_own_file(official, tmp_path, folder):
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove_complete").mkdir()
    (tmp_path / folder / "glove.6B.50d.subset.txt").write_bytes(TEXT[: TEXT.index(b"\n")])
    (tmp_path / "glove_complete" / "glove.6B.50d.txt").write_bytes(TEXT)
    for vocabulary, words in {"subset": 1, "complete": 3}.items():
        assert load_vectors(tmp_path, tmp_path, vocabulary)[1]["words"] == words


@pytest.mark.parametrize("vocabulary", ["subset", "complete"])
def test_a_vocabulary_is_never_replaced_by_the_other(official, tmp_path, vocabulary):
    other = {"subset": "glove.6B.50d.txt", "complete": "glove.6B.50d.subset.txt"}[vocabulary]
    (tmp_path / other).write_bytes(TEXT)
    with pytest.raises(OsoError, match=rf"no word vectors \({vocabulary} vocabulary\)"):
        load_vectors(tmp_path, tmp_path, vocabulary)


def test_the_subset_is_not_downloaded(official, tmp_path, opened):
    with pytest.raises(OsoError, match=r"vocabulary: subset; needs data_dir"):
        load_vectors(None, tmp_path, "subset")
    assert opened == []


def test_a_part_must_not_pass_for_the_whole(official, tmp_path):
    """Truncated at the end of a line: every line is fine, and words are missing."""
    cut = TEXT[: TEXT.rindex(b"oil")]
    for path in (tmp_path / "glove.6B.50d.txt", archive(tmp_path / "glove.6B.zip", content=cut)):
        if path.suffix == ".txt":
            path.write_bytes(cut)
        with pytest.raises(OsoError, match=rf"^{path}: truncated file .*6B.50d.subset.txt$"):
            load_vectors(tmp_path, tmp_path)
        path.unlink()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("glove.6B.50d.txt", TEXT + b"a 1\n", "line 4: 1 numbers"),
        ("glove.6B.50d.subset.txt.gz", gzip.compress(TEXT)[:-9], "truncated or damaged gzip file"),
        ("glove.6B.zip", b"PK but no more", "cannot read file .*not a zip file"),
    ],
)
def test_a_wrong_file_is_named(official, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OsoError, match=rf"^{tmp_path / name}: {message}"):
        load_vectors(tmp_path, tmp_path, "subset" if "subset" in name else "complete")


def test_an_archive_without_the_text_is_named(tmp_path):
    path = archive(tmp_path / "glove.6B.zip", name="other.txt")
    with pytest.raises(OsoError, match=rf"^{path}: does not contain glove\.6B\.50d\.txt"):
        load_vectors(tmp_path, tmp_path)


def test_a_folder_without_vectors_is_named_with_what_it_is_to_hold(tmp_path):
    with pytest.raises(OsoError, match=rf"^data_dir: {tmp_path}; no word vectors .*glove\.6B\.zip"):
        load_vectors(tmp_path, tmp_path)


def test_the_archive_is_downloaded_once(official, tmp_path, monkeypatch, opened):
    content = archive(tmp_path / "glove.6B.zip").read_bytes()
    file = SourceFile("glove.6B.zip", len(content), hashlib.sha256(content).hexdigest())
    with serving(content, server.sound) as mirrors:
        source = DatasetSource("glove", (file,), mirrors.urls, suffix="")
        monkeypatch.setattr(glove, "GLOVE_ARCHIVE", source)
        for _ in range(2):
            assert load_vectors(None, tmp_path / "cache")[1]["complete"]
    assert [url.rsplit("/", 1)[1] for url in opened] == ["glove.6B.zip"]
