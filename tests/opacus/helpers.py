"""Small private trainings through Opacus, without its notes, for the tests of this room."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import, about itself
    from oso_dp.opacus import AutoSPrivacyEngine, FixedQuantilePrivacyEngine, OnlinePrivacyEngine
    from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
    from oso_dp.opacus.privacy_engine import AdaptivePrivacyEngine

# The first: that the noise is not cryptographic. The second: a first layer's inputs need no
# gradient, and its hook is content without. The third: a test steps on batches of its own.
QUIET = (
    "ignore:Secure RNG turned off",
    "ignore:Full backward hook is firing",
    "ignore:optimizer.step. the loader that make_private returned",
)
NOT_TRIED = "ignore:module. not checked whether"
MODES = ["hooks", "functorch", "ghost"]
ENGINES: dict[str, type[AdaptivePrivacyEngine]] = {
    "online": OnlinePrivacyEngine,
    "fixed_quantile": FixedQuantilePrivacyEngine,
    "auto_s": AutoSPrivacyEngine,
}
EXAMPLES, BATCH, INPUTS, CLASSES = 120, 12, 6, 3


class Recorded:
    """Stands where the optimizer's noise does: normals of its own, or none; notes what it gave."""

    def __init__(self, normals: Callable[[str, int], Tensor] | None = None) -> None:
        self.normals = normals
        self.calls: list[tuple[str, float]] = []

    def __call__(self, name: str, deviation: float, like: Sequence[Tensor]) -> Tensor:
        self.calls.append((name, deviation))
        size = sum(reference.numel() for reference in like)
        if self.normals is None:
            return like[0].new_zeros(size)
        return deviation * self.normals(name, size).to(like[0])

    def reseed(self, device: torch.device) -> None:
        pass


@dataclass
class Made:
    """What make_private returned, and a step."""

    engine: AdaptivePrivacyEngine
    model: Any
    optimizer: AdaptiveDPOptimizer
    criterion: Any
    loader: DataLoader

    def backward(self, inputs: Tensor, targets: Tensor) -> None:
        self.criterion(self.model(inputs), targets).backward()

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        self.optimizer.zero_grad()
        self.backward(inputs, targets)
        self.optimizer.step()


def network(double: bool = False) -> nn.Sequential:
    """Linear layers and one that has no ghost rule."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(INPUTS, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, CLASSES, bias=False)
    )
    return model.double() if double else model


def examples(double: bool = False, count: int = EXAMPLES, seed: int = 1) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, INPUTS, generator=random, dtype=torch.double)
    targets = torch.randint(0, CLASSES, (count,), generator=random)
    return (inputs if double else inputs.float()), targets


def loader_of(*tensors: Tensor, batch_size: int = BATCH, seed: int | None = None) -> DataLoader:
    """`seed`: with which its batches come again."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*tensors), batch_size=batch_size, generator=generator)


def make(
    method: str = "online",
    mode: str = "hooks",
    model: nn.Module | None = None,
    loader: DataLoader | None = None,
    optimizer: Any = None,
    criterion: Any = None,
    accountant: str = "rdp",
    noise: Any = None,
    **arguments: Any,
) -> Made:
    """A private training; `noise` stands in for the optimizer's own. SGD of rate 0.1 by default."""
    model = network() if model is None else model
    if loader is None:
        loader = loader_of(*examples(next(model.parameters()).dtype == torch.double))
    if optimizer is None:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    reduction = arguments.get("loss_reduction", "mean")
    criterion = nn.CrossEntropyLoss(reduction=reduction) if criterion is None else criterion
    engine = make_engine(method, accountant)
    made = engine.make_private(
        module=model,
        optimizer=optimizer,
        criterion=criterion,
        data_loader=loader,
        grad_sample_mode=mode,
        **{"noise_multiplier": 1.0, "max_grad_norm": 0.5, **arguments},
    )
    private, private_optimizer, *rest = made
    if noise is not None:
        private_optimizer.noise = noise
    if arguments.get("wrap_model") is False:
        private = model
    return Made(
        engine, private, private_optimizer, rest[0] if mode == "ghost" else criterion, rest[-1]
    )


def parameters_of(optimizer: AdaptiveDPOptimizer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in optimizer.params])


def study_method(name: str, momentum: float = 0.0, **settings: float) -> Method:
    kind = find_method(name)
    return kind(kind.Options(**settings), momentum)


def make_engine(method: str = "online", accountant: str = "rdp") -> AdaptivePrivacyEngine:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ENGINES[method](accountant=accountant)


def make_with_epsilon(engine: AdaptivePrivacyEngine, **arguments: Any) -> Any:
    """What `make_private_with_epsilon` returns, for a network and the examples by default."""
    model = network()
    usual = {
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "data_loader": loader_of(*examples()),
        "target_epsilon": 2.0,
        "target_delta": 1e-5,
        "epochs": 1,
        "max_grad_norm": 1.0,
    }
    return engine.make_private_with_epsilon(**{**usual, **arguments})


def refused(
    run: Callable[[], object], message: str, made: Made | None = None, steps: int = 0
) -> None:
    """In one line; `made` has then taken so many steps."""
    with pytest.raises(OsoError, match=message) as raised:
        run()
    assert "\n" not in str(raised.value)
    assert made is None or made.optimizer.ledger.step_count == steps
