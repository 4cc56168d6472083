"""Parser for the IDX format, in which MNIST and Fashion-MNIST are published.

Two zero bytes, a type code, the number of dimensions, each dimension as a big-endian 32-bit
integer, then the values in row-major order (https://yann.lecun.com/exdb/mnist/).
"""

import math
import struct

import numpy as np

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse_idx(content: bytes, name: str) -> np.ndarray:
    """Return the array in `content`, in native byte order; `name` is for messages.

    Raises OsoError if the header is not IDX, or does not match the number of values.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES or content[3] == 0:
        raise OsoError(f"{name}: not an IDX file (starts with 0x{content[:4].hex()})")
    dtype, ndim = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * ndim
    if len(content) < start:
        raise OsoError(
            f"{name}: truncated IDX file ({len(content)} bytes of a {start} byte header)"
        )
    shape = struct.unpack(f">{ndim}I", content[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        problem = "truncated IDX file" if len(content) < expected else "trailing bytes in IDX file"
        raise OsoError(f"{name}: {problem} ({len(content)} bytes; must be {expected})")
    try:
        values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    except ValueError as error:  # more dimensions than numpy has, or huge ones beside a 0
        raise OsoError(
            f"{name}: header has no valid array shape ({format_os_error(error)})"
        ) from None
    return values.astype(dtype.newbyteorder("="))
