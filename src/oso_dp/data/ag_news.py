"""AG News: news in four classes (Gulli 2005; Zhang, Zhao and LeCun 2015), as GloVe embeddings.

Galli et al. embed at most the first 25 words of a text in 50 dimensions (appendix); Table 1's
parameter count implies 15 words, which is the default. An example is the concatenation of its first
words' vectors, padded with zeros; the paper does not mention any normalisation.

A text is its title and description. Its words are the runs of letters a-z and digits, in lower case
as in GloVe's vocabulary; the paper does not describe its tokenisation.
"""

import csv
import io
import re
from functools import partial
from pathlib import Path

import numpy as np

from oso_dp.data.arrays import Arrays
from oso_dp.data.download import DatasetSource, obtain
from oso_dp.data.glove import GloveVectors, load_vectors
from oso_dp.data.sources import AG_NEWS, AG_NEWS_PARTIAL
from oso_dp.errors import OsoError

COLUMNS = ("class", "title", "description")
CLASSES = ("1", "2", "3", "4")  # World, Sports, Business, Sci/Tech
_WORD = re.compile("[a-z0-9]+")


def build(
    data_dir: Path | None,
    cache: Path,
    words: int,
    oov_words: str,
    vocabulary: str,
    source: DatasetSource = AG_NEWS,
) -> tuple[Arrays, dict]:
    """Return the arrays and their provenance, which includes the vocabulary coverage.

    Inputs are [n, 50 words]; targets are 0 World, 1 Sports, 2 Business, 3 Sci/Tech. An
    out-of-vocabulary word becomes `zeros`, or is `skipped`, so that the next word takes its place.
    `source` has a training and a test file. Raises OsoError as `oso_dp.data.download.obtain`,
    `parse_news` and `oso_dp.data.glove.load_vectors`.
    """
    fetched = obtain(source, data_dir, cache, parse_news)
    vectors, origin = load_vectors(data_dir, cache, vocabulary)
    provenance: dict = {
        "files": {
            file.name: {"sha256": file.sha256, "origin": fetched[file.name].origin}
            for file in source.files
        },
        "vectors": origin,
        "known_words": {},
    }
    arrays = []
    for split, file in zip(("train", "test"), source.files, strict=True):
        texts, classes = parse_news(fetched[file.name].content, fetched[file.name].origin)
        tokens = [split_words(text) for text in texts]
        provenance["known_words"][split] = vocabulary_coverage(tokens, vectors, words)
        arrays += [embed(tokens, vectors, words, oov_words == "skipped"), classes]
    return Arrays(*arrays), provenance


# 66,994 of AG News' 120,000 training texts, and its complete test file; needs a local folder. The
# texts were collected from public copies. Some lack a title, some are in lower case, and they are
# not a uniform sample: results are not comparable with the paper's.
build_partial = partial(build, source=AG_NEWS_PARTIAL)


def embed(
    texts: list[list[str]], vectors: GloveVectors, words: int, skip_unknown: bool
) -> np.ndarray:
    """The concatenated vectors of each text's first words, float32 [n, 50 words]."""
    rows = np.zeros((len(texts), words), np.int32)
    for row, text in zip(rows, texts, strict=True):
        positions = [vectors.index.get(word, 0) for word in text]
        if skip_unknown:
            positions = [position for position in positions if position]
        row[: len(positions)] = positions[:words]
    return vectors.values[rows].reshape(len(texts), -1)


def vocabulary_coverage(texts: list[list[str]], vectors: GloveVectors, words: int) -> float:
    """The fraction of all texts' first words that are in the vocabulary."""
    known = [word in vectors.index for text in texts for word in text[:words]]
    return sum(known) / len(known)


def split_words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _WORD.findall(text.lower())


def parse_news(content: bytes, name: str) -> tuple[list[str], np.ndarray]:
    """Return the n texts and their classes, int64 [n] from 0 to 3; `name` is for messages.

    Raises OsoError, with the line, for text that is not UTF-8, an unclosed quote, a row without
    the three columns, an unknown class, and a text without a word.
    """
    try:
        lines = io.StringIO(content.decode(), newline="")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OsoError(f"{name}: line {line}: not UTF-8 ({error.reason})") from None
    reader = csv.reader(lines, strict=True)
    texts: list[str] = []
    classes: list[int] = []
    while True:
        line = reader.line_num + 1  # where the row starts
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise OsoError(f"{name}: line {line}: unbalanced quotes ({error})") from None
        if row is None:
            return texts, np.array(classes, np.int64)
        if len(row) != len(COLUMNS):
            raise OsoError(
                f"{name}: line {line}: {len(row)} column{'' if len(row) == 1 else 's'}; must have "
                f"{', '.join(COLUMNS)}"
            )
        if row[0] not in CLASSES:
            raise OsoError(f"{name}: line {line}: class {row[0][:20]!r}; must be 1 to 4")
        text = f"{row[1]} {row[2]}"
        if not _WORD.search(text.lower()):
            raise OsoError(f"{name}: line {line}: no words; must have a title or a description")
        texts.append(text)
        classes.append(int(row[0]) - 1)
