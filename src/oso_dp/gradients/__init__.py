"""Per-sample gradient norms and weighted sums of per-sample gradients, without storing all of them
(ghost norms).

One forward and one backward pass give each layer's input a_i and the gradient e_i of the loss at
its output, for each example i. From these, a rule per layer type computes norms and sums: in closed
form in `linear`, `conv` and for embeddings and normalisation in `other_layers`, by vmap for any
other layer. `decompositions` computes attention and recurrent layers by products with a rule;
`shared_parameters` adds up what several calls add to one parameter; `transformed_weights` pulls
gradients back through a function of a weight. `layer_gradients` has the rules' interface,
`forward_backward` the pass and the choice of rules, `layer_calls` the call conventions,
`structured` inputs and outputs of several tensors, `precision` the float types, and `engine` what
the rest of the package uses. `model_traits` finds out what a model does in its forward pass,
`random_numbers` is about those that it draws;
`independence_checks`, with `output_mixing` and `loss_checks`, and `pure_forward` check before
training that the rules are right for it.
"""

from oso_dp.gradients.engine import BatchGradients, GradientEngine
from oso_dp.gradients.independence_checks import check_independence, check_model
from oso_dp.gradients.precision import PRECISIONS, Precision, explain_slow, find_precision
from oso_dp.gradients.pure_forward import check_forward_is_pure

__all__ = [
    "PRECISIONS",
    "BatchGradients",
    "GradientEngine",
    "Precision",
    "check_forward_is_pure",
    "check_independence",
    "check_model",
    "explain_slow",
    "find_precision",
]
