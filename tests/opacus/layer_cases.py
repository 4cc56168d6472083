"""Small models of each kind of layer, with examples, and one-at-a-time differentiation."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import Tensor, nn


class Sequences(nn.Module):
    """Tokens to vectors, a layer over all places, and their mean to two classes."""

    def __init__(self, inside: nn.Module, width: int, words: int | None = 7) -> None:
        super().__init__()
        self.begin = nn.Identity() if words is None else nn.Embedding(words, 4, padding_idx=0)
        self.inside, self.end = inside, nn.Linear(width, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        seen = self.inside(self.begin(inputs))
        return self.end((seen[0] if isinstance(seen, tuple) else seen).mean(dim=1))


class Attention(nn.Module):
    """Self-attention, which wants the batch second, in a model that has it first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = DPMultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.attention(inputs, inputs, inputs)[0]


class Tied(nn.Module):
    """One layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.end = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.end(torch.tanh(self.twice(torch.tanh(self.twice(inputs)))))


class Unused(nn.Module):
    """One layer is never called, one is called for nothing, a parameter of its own is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.never, self.aside, self.end = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 2)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.aside(inputs)
        return self.end(torch.tanh(self.frozen(inputs)))


class Scaled(nn.Module):
    """A layer with parameters that Opacus has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


@dataclass(frozen=True)
class Case:
    """`shape`: of one example; `words`: of how many kinds, if they are words and no numbers."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int | None = None

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build().double()

    def examples(self, count: int) -> tuple[Tensor, Tensor]:
        """Of many lengths of gradients, if they are numbers."""
        random = torch.Generator().manual_seed(1)
        targets = torch.randint(0, 2, (count,), generator=random)
        if self.words is not None:
            return torch.randint(0, self.words, (count, *self.shape), generator=random), targets
        inputs = torch.randn(count, *self.shape, generator=random, dtype=torch.double)
        scales = torch.logspace(-2, 2, max(count, 1), dtype=torch.double)[:count]
        return inputs * scales.view(-1, *[1] * len(self.shape)), targets


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
        nn.Tanh(),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 3, 2, dilation=2, bias=False),
        nn.Flatten(),
        nn.LazyLinear(2),
    )


def _built(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    model(torch.zeros(1, *shape))
    return model


CASES = {
    "linear": Case(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)), (6,)),
    "conv2d": Case(lambda: _built(_convolutions(), (2, 9, 9)), (2, 9, 9)),
    "conv2d of few numbers": Case(
        lambda: nn.Sequential(nn.Conv2d(1, 8, 5), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)),
        (1, 5, 5),
    ),
    "conv2d same": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(15, 2)),
        (2, 5),
    ),
    "conv1d": Case(
        lambda: nn.Sequential(
            nn.Conv1d(8, 9, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(45, 2)
        ),
        (8, 5),
    ),
    "long sequence": Case(lambda: Sequences(nn.Linear(4, 3), 3, None), (9, 4)),
    "short sequence": Case(lambda: Sequences(nn.Linear(8, 9), 9, None), (2, 8)),
    "sequence of sequences": Case(
        lambda: nn.Sequential(nn.Linear(8, 9), nn.Tanh(), nn.Flatten(), nn.Linear(36, 2)), (2, 2, 8)
    ),
    "embedding": Case(lambda: Sequences(nn.Linear(4, 3), 3), (5,), 7),
    "layer norm": Case(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 2)), (6,)
    ),
    "no rule": Case(lambda: nn.Sequential(Scaled(), nn.Linear(6, 2)), (6,)),
    "tied": Case(Tied, (6,)),
    "unused": Case(Unused, (6,)),
    "lstm": Case(lambda: Sequences(DPLSTM(4, 5, batch_first=True), 5), (5,), 7),
    "attention": Case(lambda: Sequences(Attention(), 4), (5,), 7),
}


def alone(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Each example's gradient of its cross-entropy, by plain differentiation, [B, P]."""
    trained = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for one, target in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(model(one[None]), target[None])
        parts = torch.autograd.grad(loss, trained, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    (torch.zeros_like(p) if part is None else part).flatten()
                    for p, part in zip(trained, parts, strict=True)
                ]
            )
        )
    return torch.stack(rows)
