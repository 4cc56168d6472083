"""What becomes of valid files: values replaced, left out, moved; bytes lost and changed."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2, 0.5, -0.0, 1e-300, 1e300, 10**9, 2**63 - 1, True, False]),
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
)
TEXTS = st.one_of(st.sampled_from(["", "hello", "{}", "../x", "a\nb", "no_dp", "1e-5"]), st.text())
VALUES = st.one_of(
    st.none(), NUMBERS, TEXTS, st.lists(NUMBERS, max_size=3), st.dictionaries(TEXTS, NUMBERS)
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Where something stands in nested lists and mappings, in an order that stays."""
    if isinstance(value, dict):
        inside = [place for key in value for place in places(value[key], (*path, key))]
    elif isinstance(value, list):
        inside = [place for i, one in enumerate(value[:4]) for place in places(one, (*path, i))]
    else:
        inside = []
    return [path, *inside] if path else inside


def changed(value: Any, place: tuple, how: str, other: Any) -> Any:
    """A copy in which the value at `place` is replaced, dropped, or stands under another key."""
    value = deepcopy(value)
    *way, last = place
    holder = value
    for key in way:
        holder = holder[key]
    if how == "replace":
        holder[last] = other
    elif how == "drop":
        del holder[last]
    elif isinstance(holder, list):
        holder.append(holder[last])
    else:
        holder[str(other)] = holder.pop(last)
    return value


HOW = st.sampled_from(["replace", "drop", "move"])


# What numbers, lengths and texts turn into.
PIECES = [
    *(
        number.to_bytes(4, order)
        for number in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)
        for order in ("big", "little")
    ),
    *(b"\xff" * 8, b"\x80", b"\0", b"\n", b"\r", b'"', b"'", b",", b":", b" ", b"-", b"{", b"}"),
    *(b"[", b"]", b"&a ", b"*a", b"<<: ", b"!!", b"nan", b"1e999", b"-1", b"9" * 30, b"null"),
    *(b"true", b"Infinity", b"\xef\xbb\xbf", b"\\ud800", b"../", b"/", b"\xc3", b"1e40", b"0x"),
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 10**9, 2**63, 10**400, 0.5, -0.0, 1e-300, 1e300),
    *(float("nan"), float("inf"), -float("inf"), "", "a", "no_dp", "../x", "a\nb", "\ud800", "1e5"),
    *([], [[]], [1, "a", None], {}, {"": {}}, {"name": "a"}, [{}], [[1, 2, 3]], "x" * 3000),
]


def spoiled(*valid: bytes) -> st.SearchStrategy[bytes]:
    """One of these files after a few edits, as disks, editors and enemies make them."""
    return st.binary(min_size=7, max_size=25).map(lambda drawn: edited(valid, drawn))


def edited(valid: tuple[bytes, ...], drawn: bytes) -> bytes:
    """Six of the drawn bytes are an edit: one number drawn is cheaper than five."""
    content = bytearray(valid[drawn[0] % len(valid)])
    for start in range(1, len(drawn) - 5, 6):
        kind, length, piece, *place = drawn[start : start + 6]
        new = PIECES[piece % len(PIECES)] if piece < 200 else bytes(place)
        at = int.from_bytes(place, "big") % (len(content) + 1)
        stop = at + length % 64
        match kind % 8:
            case 0 | 1:
                content[at : at + len(new)] = new
            case 2 | 3:
                content[at:at] = new
            case 4:
                del content[at:stop]
            case 5:
                content[at:at] = content[at:stop]
            case 6:
                del content[at:]
            case _:
                content[at : at + 1] = bytes(
                    byte ^ 1 << length % 8 for byte in content[at : at + 1]
                )
    return bytes(content)


def spoiled_values(valid: Any) -> st.SearchStrategy[Any]:
    """Nested lists and mappings after one or two changes."""
    return st.binary(min_size=4, max_size=8).map(lambda drawn: _changed_by(valid, drawn))


def _changed_by(value: Any, drawn: bytes) -> Any:
    for start in range(0, len(drawn) - 3, 4):
        at, more, how, other = drawn[start : start + 4]
        where = places(value)
        if where:
            place = where[(256 * more + at) % len(where)]
            kind = ("replace", "replace", "drop", "move")[how % 4]
            value = changed(value, place, kind, ODD[other % len(ODD)])
    return value
