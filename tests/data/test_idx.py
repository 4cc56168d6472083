import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oso_dp.data.idx import parse_idx
from oso_dp.errors import OsoError

DTYPES = st.sampled_from(["uint8", "int8", "int16", "int32", "float32", "float64"])
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))


@given(array=ARRAYS)
def test_what_was_written_is_read(encode_idx, array):
    read = parse_idx(encode_idx(array), "x")
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


@given(array=ARRAYS, data=st.data())
def test_any_truncation_is_refused_by_name(encode_idx, array, data):
    content = encode_idx(array)
    keep = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(OsoError, match=r"some-file: (truncated|not an IDX)"):
        parse_idx(content[:keep], "some-file")


def test_trailing_bytes_are_refused(encode_idx):
    with pytest.raises(OsoError, match="some-file: trailing bytes"):
        parse_idx(encode_idx(np.zeros((2, 3), np.uint8)) + b"\0", "some-file")


@pytest.mark.parametrize(
    "content",
    [
        b"\x1f\x8b\x08\x01" + bytes(8),  # a gzip file
        b"\0\1\x08\x01" + bytes(8),  # wrong zeros
        b"\0\0\x0a\x01" + bytes(8),  # a type code that does not exist
        b"\0\0\x08\x00" + bytes(8),  # no dimension
    ],
)
def test_another_magic_is_refused(content):
    with pytest.raises(OsoError, match=f"some-file: not an IDX.*0x{content[:4].hex()}"):
        parse_idx(content, "some-file")


def test_a_huge_promise_is_refused_without_allocating_it():
    head = struct.pack(">BBBB4I", 0, 0, 14, 4, *[2**32 - 1] * 4)
    with pytest.raises(OsoError, match="truncated"):
        parse_idx(head, "x")
