"""The interface of per-sample gradient rules (norms and weighted sums per layer), and row norms."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and targets to one loss per example, [N]
Sums = dict[str, Tensor]


class LayerGradients(Protocol):
    """Per-example gradients of one layer's parameters, in whatever form is small.

    Of N = R B examples: those of R runs, one run's after the other's.
    """

    def norms(self) -> Tensor:
        """2-norm over all the layer's parameters, float64 [N]."""

    def drop(self, bad: Tensor) -> None:
        """Make the gradients of these examples (bool [N]) zero; they are not finite."""

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        """For weights [R, J, B]: by parameter sum_i weights[r, j, i] g_ri, [R, J, *its shape].

        In the weights' type, whatever the gradients' is. `onto`: what the same layer's rule
        returned for other examples; the sums are added to it, in place, and it is returned.
        """


# An example with a gradient, or a factor of one, longer than this contributes nothing: beyond it a
# sum over the batch could overflow before any noise is added.
LARGEST_NORM = 1e18
_SMALL, _LARGE = 1e-12, LARGEST_NORM  # between these, float32 squares lose nothing that matters
# Float32 norms of longer rows come out too small: by 1.5e-5 at twice that, 1 % at ten million.
_MAX_ROW_LENGTH = 2**13


# Bytes that are laid out at the same time: on a CPU they stay in the cache.
CHUNK_BYTES = {"cpu": 2**22, "cuda": 2**29}


def chunks(values: Tensor, bytes_each: int) -> Iterator[slice]:
    """Parts of N examples [N, ...] for each of which so many bytes are laid out.

    A power of two, so that portions of 64 have no remainder: a product's shape may decide how it is
    rounded, and no example's gradient may depend on how many others there are.
    """
    size = 2 ** max(0, (CHUNK_BYTES[values.device.type] // bytes_each).bit_length() - 1)
    return (slice(start, start + size) for start in range(0, len(values), size))


def is_async_device(values: Tensor) -> bool:
    """Whether the host has to wait for its answer when it asks about them: on an accelerator."""
    return values.device.type != "cpu"


def row_norms(values: Tensor) -> Tensor:
    """2-norm of each row of [B, ...], float64 [B], also where float32 squares under- or overflow.

    A norm that is measured too small lets its example through the clip: sensitivity rests on this.
    """
    rows = values.flatten(1)
    if rows.shape[1] > _MAX_ROW_LENGTH:
        parts = [row_norms(part) for part in rows.split(_MAX_ROW_LENGTH, dim=1)]
        return torch.linalg.vector_norm(torch.stack(parts), dim=0)
    if is_async_device(rows):  # float64 costs little there
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    exact = torch.float32 if rows.dtype.itemsize < 4 else None  # squares and sums of short numbers
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=exact).double()
    if norms.numel() == 0 or not rows.shape[1]:
        return norms
    low, high = (end.item() for end in norms.aminmax())
    if not (low > _SMALL and high < _LARGE):  # also where one is no number
        odd = ~((norms > _SMALL) & (norms < _LARGE))
        # Where all are zero, as behind a dead unit, nothing is lost.
        odd &= (rows.amax(dim=1) != 0) | (rows.amin(dim=1) != 0)
        norms[odd] = torch.linalg.vector_norm(rows[odd].double(), dim=1)
    return norms
