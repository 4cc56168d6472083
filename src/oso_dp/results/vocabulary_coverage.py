"""`vocabulary_coverage.json` in a results store: the share of words that have a vector.

A subset of the word vectors covers fewer words and gives worse results, so the report shows the
coverage. It is computed on the test texts, which are public: that of the training texts would be a
release without noise and outside the ledger. Other provenance of a data file is left out, since it
names local folders.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oso_dp.data.arrays import read_provenance
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular, format_os_error, parse_json
from oso_dp.locks import only_writer

COVERAGE_FILE = "vocabulary_coverage.json"


def store_coverage(store: Path, data_files: Iterable[Path]) -> None:
    """Add the prepared texts' facts to the store, by data set; those of other data sets stay.

    A vocabulary that is not the data set's default follows its name, as ag_news_partial-complete.

    Per data set: `known_words` (test: the share that has a vector), `preparation`, and of the
    `vectors` their number, checksum, and whether they are complete. Images have none. Raises
    OsoError for a file that is not what it is taken for; nothing is written then.
    """
    new: dict[str, Any] = {}
    for path in data_files:
        made = read_provenance(path)
        if "known_words" in made:
            try:
                new |= _make_coverage(made)
            except (KeyError, TypeError, AttributeError) as error:
                raise OsoError(f"{path}: not what `oso data` says of texts ({error!r})") from None
    if not new:
        return
    with only_writer(store):
        _add(store / COVERAGE_FILE, new)


def _make_coverage(made: dict[str, Any]) -> dict[str, Any]:
    vectors = {key: made["vectors"][key] for key in ("words", "sha256", "complete")}
    facts = {
        "known_words": {"test": made["known_words"]["test"]},
        "preparation": made["preparation"],
        "vectors": vectors,
    }
    name = "-".join([made["dataset"], *filter(None, [made["preparation"].get("vocabulary")])])
    return {name: facts}


def _add(path: Path, new: dict[str, Any]) -> None:
    check_regular(path)
    try:
        stored = parse_json(path.read_text(encoding="utf-8")) if path.exists() else {}
        text = json.dumps({**stored, **new}, indent=1, sort_keys=True)
    except (OSError, ValueError, TypeError) as error:
        raise OsoError(f"{path}: not the facts of data sets ({format_os_error(error)})") from None
    with atomic_write(path) as file:
        file.write(f"{text}\n".encode())
