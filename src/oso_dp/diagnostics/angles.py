"""How far two gradients point the same way."""

from torch import Tensor


def cosine_between(one: Tensor, other: Tensor) -> float:
    """Of two vectors [P], in float64; NaN where one of them is zero."""
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))
