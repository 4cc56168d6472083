"""Cosine similarity of gradients."""

from torch import Tensor


def cosine_between(one: Tensor, other: Tensor) -> float:
    """Cosine similarity of two vectors [P], in float64; NaN if one of them is zero."""
    one, other = one.double(), other.double()
    return float(one @ other / (one.norm() * other.norm()))
