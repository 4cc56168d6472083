"""Parser for AG News's CSV files: `class,title,description`, quoted, without a header.

A text is its title and description. Its words are the runs of letters a-z and digits, in lower case
as in GloVe's vocabulary. The paper does not describe its tokenisation.
"""

import csv
import io
import re

import numpy as np

from oso_dp.errors import OsoError

COLUMNS = ("class", "title", "description")
CLASSES = ("1", "2", "3", "4")  # World, Sports, Business, Sci/Tech
_WORD = re.compile("[a-z0-9]+")


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
