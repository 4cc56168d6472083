"""Per-example gradient norms and weighted sums of per-example gradients, without holding them all.

One forward and one backward pass give each layer's input a_i and the loss's gradient e_i at the
layer's output, for each example i. From these a rule per kind of layer has the norms and sums:
`linear`, `conv2d`, `conv1d` (transposed ones, too), `sequence_linear`, `embedding`, `normalisation`
in closed form, `functional` for any other layer. `registry` has which, `forms` how one is called.
`trial`, `independence` and `pure_forward` try, when training starts, whether these are right for
the model, and `precision` says how products are computed.
"""

from oso_dp.gradients.batch import BatchGradients
from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.independence_checks import check_independence
from oso_dp.gradients.model_checks import check_model
from oso_dp.gradients.precision import PRECISIONS, Precision, explain_slow, find_precision
from oso_dp.gradients.pure_forward import check_forward_is_pure, check_unchanged

__all__ = [
    "PRECISIONS",
    "BatchGradients",
    "GradientEngine",
    "Precision",
    "check_forward_is_pure",
    "check_independence",
    "check_model",
    "check_unchanged",
    "explain_slow",
    "find_precision",
]
