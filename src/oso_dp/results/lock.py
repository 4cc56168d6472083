"""Whoever writes a file that may lie in a results store is the store's one writer meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oso_dp.locks import only_writer
from oso_dp.results.read import is_store


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around the writing of one file: alone in its folder, if that is a results store."""
    if is_store(path.parent):
        with only_writer(path.parent):
            yield
    else:
        yield
