"""A layer's per-sample gradients for a batch that was processed in microbatches."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.protocol import LayerGradients, Sums

MSG_MIXES_EXAMPLES = (
    "mixes examples; use layers that process each example separately, such as GroupNorm"
)


class MicrobatchGradients:
    """The rules of one layer, one per microbatch of all runs, in order.

    norms: the result of each rule's `norms`. size: examples per run, without the padding of the
    last microbatch.
    """

    def __init__(
        self, rules: Sequence[LayerGradients], norms: Sequence[Tensor], runs: int, size: int
    ) -> None:
        self.rules, self.runs, self.size = rules, runs, size
        self.widths = [len(part) // runs for part in norms]
        by_run = [part.view(runs, -1) for part in norms]
        self._norms = torch.cat(by_run, dim=1) if len(by_run) > 1 else by_run[0]
        self.padding = self._norms.shape[1] - size
        if self.padding:  # zero times infinity is not zero
            self._drop(F.pad(self._norms.new_zeros(runs, size), (0, self.padding), value=1.0) > 0)

    def norms(self) -> Tensor:
        return self._norms[:, : self.size].flatten()

    def drop(self, bad: Tensor) -> None:
        bad = bad.view(self.runs, self.size)
        self._drop(self._with_padding(bad))

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        parts = self._with_padding(weights).split(self.widths, dim=2)
        for rule, part in zip(self.rules, parts, strict=True):
            onto = rule.weighted_sums(part, onto)
        assert onto is not None
        return onto

    def _with_padding(self, values: Tensor) -> Tensor:
        """[..., B] with zeros for what fills up the last portion."""
        return F.pad(values, (0, self.padding)) if self.padding else values

    def _drop(self, bad: Tensor) -> None:
        for rule, part in zip(self.rules, bad.split(self.widths, dim=1), strict=True):
            if bad.is_cuda or part.any():
                rule.drop(part.flatten())


def checked_norms(rule: LayerGradients, examples: int) -> Tensor:
    """The rule's norms, [N]; OsoError if there is not one for each example."""
    norms = rule.norms()
    if len(norms) != examples:  # several rows of one example would be clipped separately
        raise OsoError(f"model: a layer's input {MSG_MIXES_EXAMPLES}; it must have one row each")
    return norms
