"""AG News: news in four classes (Gulli 2005; Zhang, Zhao and LeCun 2015), as GloVe embeddings.

Galli et al. embed at most the first 25 words of a text in 50 dimensions (appendix); Table 1's
parameter count implies 15 words, which is the default. An example is the concatenation of its first
words' vectors, padded with zeros; the paper does not mention any normalisation.
"""

from pathlib import Path

import numpy as np

from oso_dp.data.ag_news_csv import parse_news, split_words
from oso_dp.data.arrays import Arrays
from oso_dp.data.download import DatasetSource, obtain
from oso_dp.data.glove import GloveVectors, load_vectors
from oso_dp.data.sources import AG_NEWS


def build(
    data_dir: Path | None,
    cache: Path,
    words: int = 15,
    oov_words: str = "zeros",
    vocabulary: str = "complete",
    source: DatasetSource = AG_NEWS,
) -> tuple[Arrays, dict]:
    """Return the arrays and their provenance, which includes the vocabulary coverage.

    Inputs are [n, 50 words]; targets are 0 World, 1 Sports, 2 Business, 3 Sci/Tech. An
    out-of-vocabulary word becomes `zeros`, or is `skipped`, so that the next word takes its place.
    `source` has a training and a test file. Raises OsoError as `oso_dp.data.download.obtain`,
    `oso_dp.data.ag_news_csv.parse_news` and `oso_dp.data.glove.load_vectors`.
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
