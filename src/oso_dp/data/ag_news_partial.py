"""A subset of AG News: 66,994 of its 120,000 training texts, and the complete test file.

The subset was collected from public copies. Some texts lack a title, some are in lower case, and it
is not a uniform sample: results are not comparable with the paper's.
"""

from pathlib import Path

from oso_dp.data import ag_news
from oso_dp.data.arrays import Arrays
from oso_dp.data.sources import AG_NEWS_PARTIAL


def build(
    data_dir: Path | None,
    cache: Path,
    words: int = 15,
    oov_words: str = "zeros",
    vocabulary: str = "subset",
) -> tuple[Arrays, dict]:
    """As `oso_dp.data.ag_news.build`; needs a local folder."""
    return ag_news.build(data_dir, cache, words, oov_words, vocabulary, AG_NEWS_PARTIAL)
