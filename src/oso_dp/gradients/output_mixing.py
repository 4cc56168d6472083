"""Whether a model's outputs for an example depend on the others of its batch, in rarer cases.

A model may mix examples in some random draws only (a branch, a permutation of random numbers), for
some tokens or lengths (it cuts a batch after its longest text, or sorts it by length), in large
batches, or beside examples of zeros or huge numbers. Examples are made up.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, map_tensors, select, tensors_of

EXAMPLES: Final = 3
RANDOM_DRAWS: Final = 20  # what mixes in one draw of two passes in one model of a million
_TOKENS: Final = 16  # below it are most tokens of padding
_TOKEN_BATCHES: Final = 2
_KEPT: Final = (0.5, 1.0, 0.25)  # of the lengths of three examples: sorted neither way
_LARGE: Final = 1e4
_ROWS: Final = 64  # of a large batch
_MOST_NUMBERS: Final = 2**22  # of its inputs, and of its outputs
_SCALES: Final = (0.0, 1e-8, 1.0, 1e8)  # of its rows
Outputs: TypeAlias = Callable[[Structure], Sequence[Tensor]]  # tensors [B, ...] of a batch


def mixes_by_chance(outputs: Outputs, inputs: Structure, tolerance: float) -> bool:
    """Whether the first or last of three examples depends on the others in one of several draws.

    It keeps its place, which may decide what it draws; the draws are the same in both batches.
    """
    device = tensors_of(inputs)[0].device
    for seed in range(RANDOM_DRAWS):
        place = (0, EXAMPLES - 1)[seed % 2]
        with seeded(seed, device):
            together = outputs(inputs)
        with seeded(seed, device):
            moved = outputs(map_tensors(partial(_in_other_company, place=place), inputs))
        if not _are_rows_close(together, moved, place, place, tolerance):
            return True
    return False


def mixes_for_tokens(
    outputs: Outputs, model: nn.Module, inputs: Structure, tolerance: float
) -> bool:
    """Whether an example in a batch differs from itself alone, at tokens of each embedding.

    Values that the model refuses are skipped. On a GPU, such a value would end the process's use of
    the device, so that there is nothing tried.
    """
    whole = [part for part in tensors_of(inputs) if _is_whole(part)]
    if any(part.is_cuda for part in whole):
        return False
    random = torch.Generator().manual_seed(0)
    tables = {one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)}
    ranges = {(0, _TOKENS), *((0, min(rows, _TOKENS)) for rows in tables)}
    ranges |= {(rows - 2, rows) for rows in tables if rows > 2}

    def mixes(made: Structure) -> bool:
        try:
            together = outputs(made)
            alone = [outputs(select(made, [row])) for row in range(EXAMPLES)]
        except Exception:  # whatever a model may do with numbers that mean nothing
            return False
        rows = enumerate(alone)
        return not all(_are_rows_close(together, one, row, 0, tolerance) for row, one in rows)

    for part in whole:  # one at a time: a mask takes 0 and 1 only
        for low, high in sorted(ranges) * _TOKEN_BATCHES:
            made = torch.randint(low, high, part.shape, generator=random).to(part)
            if mixes(_replaced(inputs, part, made)):
                return True
    return False


def padded_inputs(model: nn.Module, inputs: Structure) -> Iterator[Structure]:
    """Batches of three examples of different lengths: padded by zeros, tokens also by the last one.

    The first tensor of integers has tokens of the largest embedding, the others have ones. The
    model may refuse them. On a GPU, a token too many would end the process's use of the device, so
    that none are tried.
    """
    random = torch.Generator().manual_seed(0)
    whole = [part for part in tensors_of(inputs) if _is_whole(part) and not part.is_cuda]
    tables = [one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)]
    words = max(tables, default=_TOKENS)

    def padded(part: Tensor, padding: int) -> Tensor:
        if whole and part is whole[0]:
            drawn = torch.randint(0, words, part.shape, generator=random).to(part)
            return _cut(drawn, padding)
        return _cut(part if part.is_floating_point() else torch.ones_like(part), 0)

    for padding in {0, words - 1} if whole else {0}:
        yield map_tensors(partial(padded, padding=padding), inputs)


def _cut(part: Tensor, padding: int) -> Tensor:
    """Three rows, of which each keeps a share of its numbers along each dimension."""
    made = torch.full_like(part, padding)
    for row, share in enumerate(_KEPT):
        kept = tuple(slice(math.ceil(share * size)) for size in part.shape[1:])
        made[row][kept] = part[row][kept]
    return made


def mixes_in_large_batch(outputs: Outputs, inputs: Structure, tolerance: float) -> bool:
    """Whether three examples' outputs differ in a batch of many, of all sizes and zeros.

    A batch of many numbers is smaller; one that the model refuses is skipped.
    """
    few = outputs(inputs)
    numbers = max(one.numel() // EXAMPLES for one in (*tensors_of(inputs), *few))
    rows = max(EXAMPLES + len(_SCALES), min(_ROWS, _MOST_NUMBERS // max(1, numbers)))
    random = torch.Generator().manual_seed(0)
    at = places(EXAMPLES, rows)

    def beside(part: Tensor) -> Tensor:
        shape = (rows, *part.shape[1:])
        if part.is_floating_point():
            scales = torch.tensor(_SCALES, dtype=torch.float64).repeat(rows)[:rows]
            made = torch.randn(shape, generator=random, dtype=torch.float64)
            made *= scales.view(-1, *[1] * (part.dim() - 1))
        else:
            made = torch.randint(0, 2, shape, generator=random)
        made = made.to(part)
        made[at] = part
        return made

    try:
        many = outputs(map_tensors(beside, inputs))
    except Exception:  # a buffer may have rows for so many examples only
        return False
    pairs = enumerate(at)
    return not all(_are_rows_close(few, many, row, there, tolerance) for row, there in pairs)


def places(count: int, size: int) -> list[int]:
    """The first and the last row of a batch of this size, and rows between."""
    return [row * (size - 1) // max(1, count - 1) for row in range(count)]


def is_close(one: Tensor, right: Tensor, scale: float, tolerance: float) -> bool:
    """Within the tolerance of each number and of the scale."""
    return torch.allclose(one, right, rtol=tolerance, atol=tolerance * scale)


def _in_other_company(part: Tensor, place: int) -> Tensor:
    """Three rows, of which one stays and the others become much larger, or copies of it."""
    if not part.is_floating_point():
        return part[[place] * EXAMPLES]
    made = _LARGE * part
    made[1] *= -1
    made[place] = part[place]
    return made


def _replaced(inputs: Structure, part: Tensor, by: Tensor) -> Structure:
    return map_tensors(lambda one: by if one is part else one, inputs)


def _is_whole(part: Tensor) -> bool:
    return not part.is_floating_point() and part.dtype != torch.bool


def _are_rows_close(
    one: Sequence[Tensor], other: Sequence[Tensor], row: int, other_row: int, tolerance: float
) -> bool:
    """Whether a row of each output is another's; not compared where neither is finite."""
    for part, again in zip(one, other, strict=True):
        here, there = part[row].detach().double(), again[other_row].detach().double()
        if here.shape != there.shape:
            return False
        scale = 0.1 * float(here.abs().max()) if here.numel() else 0.0
        is_finite = here.isfinite().all() or there.isfinite().all()
        if is_finite and not is_close(here, there, scale, tolerance):
            return False
    return True
