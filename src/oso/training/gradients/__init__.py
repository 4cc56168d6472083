"""Per-example gradient norms and weighted sums of per-example gradients, without holding them all.

One forward and one backward pass give each layer's input a_i and the loss's gradient e_i at the
layer's output, for each example i. From these a rule per kind of layer has the norms and sums:
`linear` and `conv2d` (transposed ones, too) in closed form, `functional` for any other layer.
`precision` says how products are computed.
"""

from oso.training.gradients.batch import BatchGradients
from oso.training.gradients.code import GradientCode
from oso.training.gradients.precision import PRECISIONS, Precision, find_precision, slow_reason

__all__ = [
    "PRECISIONS",
    "BatchGradients",
    "GradientCode",
    "Precision",
    "find_precision",
    "slow_reason",
]
