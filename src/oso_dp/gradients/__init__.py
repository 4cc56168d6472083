"""Per-sample gradient norms and weighted sums of per-sample gradients, without storing all of them
(ghost norms).

One forward and one backward pass give each layer's input a_i and the gradient e_i of the loss at
its output, for each example i. From these, a rule per layer type computes norms and sums: in closed
form in `linear`, `conv2d`, `conv1d` (also transposed), `sequence_linear`, `embedding`,
`norm_layers`; by vmap in `functional` for any other layer. `registry` selects the rule,
`layer_calls` has the call conventions. `model_checks`, `independence_checks` and `pure_forward`
check before training that the rules are right for the model. `precision` has the float types.
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
