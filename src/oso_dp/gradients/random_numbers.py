"""Random numbers that a model draws: dropout, stochastic depth.

A pass starts from a seed of its own (`seeded`). `SameForAllExamples` gives all examples the same
numbers, so that the checks before training can compare an example in a batch with itself alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from oso_dp.errors import OsoError


def seed_torch(seed: int, devices: Iterable[torch.device] = ()) -> None:
    """Start torch's generators of the CPU and of these devices from this seed.

    `torch.manual_seed` also seeds all other GPUs, now or when they are first used. For that it
    formats a traceback for each kind of device, which takes as long as a third of a small step.
    """
    torch.default_generator.manual_seed(seed)
    for device in devices:
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)


@contextmanager
def seeded(seed: int | None, *devices: torch.device) -> Iterator[None]:
    """Inside, torch's generators of the CPU and of these devices start from this seed.

    Afterwards they are as before. With None they go on as they are.
    """
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices={one for one in devices if one.type == "cuda"}):
        seed_torch(seed, devices)
        yield


class SameForAllExamples(TorchDispatchMode):
    """Inside, all examples are given the same random numbers, whatever the size of a batch.

    Examples are the first dimension. What is drawn depends on the number of the draw alone, counted
    from when torch was last seeded: each example of a whole model may have a seed of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seed, self._draws = torch.initial_seed(), 0
        self._attention = sdpa_kernel(SDPBackend.MATH)  # other kernels draw numbers by themselves

    def __enter__(self) -> Self:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._attention.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if self._seed != torch.initial_seed():
            self._seed, self._draws = torch.initial_seed(), 0
        self._draws += 1
        name = func.name().split("::")[1].split(".")[0]
        device = next((one.device for one in args if isinstance(one, Tensor)), torch.device("cpu"))
        with seeded(self._draws, device):
            if name == "native_dropout":
                return self._dropout(func, *args, **kwargs)
            if name in _IN_PLACE:
                first, *others = args
                return first.copy_(func(first[:1].clone(), *map(_first_row, others), **kwargs))
            if name in _LIKE:
                first, *others = args
                drawn = func(first[:1], *map(_first_row, others), **kwargs)
                return drawn.expand_as(first).clone()
            if name in _OF_SIZE:
                place = next(i for i, one in enumerate(args) if isinstance(one, list | tuple))
                size = args[place]
                few = (
                    *args[:place],
                    [min(1, size[0]), *size[1:]] if size else [],
                    *args[place + 1 :],
                )
                return func(*few, **kwargs).expand(size).clone()
        raise OsoError(
            f"model: draws random numbers by torch's {name}, which cannot be checked; use rand, "
            "randn or a dropout layer"
        )

    def _dropout(self, func: Any, values: Tensor, p: float, train: bool | None) -> Any:
        _, kept = func(torch.ones_like(values[:1]), p, train)
        kept = kept.expand_as(values).clone()
        scale = 1 / (1 - p) if train is not False and p < 1 else 1.0
        return values * kept * scale, kept


_IN_PLACE = {
    *("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "cauchy_", "geometric_"),
    "log_normal_",
}
_LIKE = {"bernoulli", "rand_like", "randn_like", "randint_like", "poisson", "normal"}
_OF_SIZE = {"rand", "randn", "randint"}


def _first_row(value: Any) -> Any:
    return value[:1] if isinstance(value, Tensor) and value.dim() else value
