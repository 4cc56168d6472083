"""Per-example gradient norms and weighted sums of per-example gradients, without holding them all.

One forward and one backward pass give each layer's input a_i and the loss's gradient e_i at the
layer's output, for each example i. From these a rule per kind of layer has the norms and sums:
`linear`, `conv2d`, `conv1d` (transposed ones, too), `sequence_linear`, `embedding`, `normalisation`
in closed form, `functional` for any other layer. `registry` has which, `forms` how one is called.
`trial`, `independence` and `pure_forward` try, when training starts, whether these are right for
the model, and `precision` says how products are computed.
"""

from oso_dp.gradients.batch import BatchGradients
from oso_dp.gradients.code import GradientCode
from oso_dp.gradients.independence import check_independence
from oso_dp.gradients.precision import PRECISIONS, Precision, find_precision, slow_reason
from oso_dp.gradients.pure_forward import check_forward_is_pure, refuse_changes
from oso_dp.gradients.trial import check_model

__all__ = [
    "PRECISIONS",
    "BatchGradients",
    "GradientCode",
    "Precision",
    "check_forward_is_pure",
    "check_independence",
    "check_model",
    "find_precision",
    "refuse_changes",
    "slow_reason",
]
