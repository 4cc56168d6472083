"""Strict YAML: an error where YAML 1.1 silently accepts a likely mistake.

YAML 1.1 keeps the last of two equal keys, reads 010 as 8 and 1:30 as 90, and allows keys that are
not text. Each is an error here that names the key.
"""

import re
from pathlib import Path
from typing import Any, TextIO

import yaml

from oso_dp.errors import OsoError
from oso_dp.files import check_regular, format_os_error

_PLAIN_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9]*|[0-9]*\.[0-9]*([eE][-+]?[0-9]+)?|\.(inf|nan))", re.I
)
_MAX_VALUES = 100_000
_MAX_CHARACTERS = 10_000_000
_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, source: str) -> Any:
    """The values of one document; OsoError names the source, and the key where it is about one."""
    if len(text) > _MAX_CHARACTERS:
        raise OsoError(f"{source}: too long; must have at most {_MAX_CHARACTERS:,} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            if _size(node, {}) > _MAX_VALUES:  # each alias counted as what it stands for
                raise OsoError(
                    f"{source}: too many values; must have at most {_MAX_VALUES:,}, with aliases "
                    "expanded"
                )
            _check(node, source, (), set())
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OsoError(f"{source}: not YAML ({' '.join(why.split())})") from None


def read_text(path: Path) -> str:
    """A file's text; OsoError for what cannot be read or is not UTF-8."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8") as file:
            return read_limited(file)
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None
    except UnicodeDecodeError:
        raise OsoError(f"{path}: not YAML (not UTF-8 text)") from None


def read_limited(file: TextIO) -> str:
    """The text, cut just beyond what `read_yaml` accepts: a device or a pipe may never end."""
    return file.read(_MAX_CHARACTERS + 1)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values in a node and below; too many where it contains itself."""
    if id(node) not in known:
        known[id(node)] = _MAX_VALUES  # until it is computed
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_size(part, known) for part in inner)
    return known[id(node)]


def _check(node: yaml.Node, source: str, path: tuple[str, ...], seen: set[int]) -> None:
    if id(node) in seen:  # an alias; it may even contain itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            name = _key(key, source, path)
            if name in keys:
                raise OsoError(f"{source}: {_at(*path, name)}: appears twice")
            keys.add(name)
            _check(value, source, (*path, name), seen)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            _check(value, source, (*path, str(position)), seen)
    elif node.tag in (_TAG + "int", _TAG + "float") and not _PLAIN_NUMBER.fullmatch(node.value):
        raise OsoError(
            f"{source}: {_at(*path)}: {node.value}; must be a number in decimal digits (YAML reads "
            "010 as 8, and 1:30 as 90), or text in quotes"
        )


def _key(node: yaml.Node, source: str, path: tuple[str, ...]) -> str:
    merged = node.tag == _TAG + "merge"
    if isinstance(node, yaml.ScalarNode) and (merged or node.tag == _TAG + "str"):
        return str(node.value)
    written = str(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
    raise OsoError(
        f"{source}: {_at(*path, written or 'null')}: a key must be text (line "
        f"{node.start_mark.line + 1})"
    )


def _at(*path: str) -> str:
    return ".".join(path) or "document"
