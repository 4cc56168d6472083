"""Every competitor by name: the peers, and each method of the study as ours."""

from competitor import Competitor
from jax_peer import Jax
from opacus_peer import OpacusGhost, OpacusHooks
from ours import Ours
from plain_sgd import OwnLayersSGD, PlainSGD
from torch_func_peer import TorchFunc

from oso.errors import OsoError
from oso.methods import PAPER_METHODS, find_method, method_names

BASELINE = "sgd"
PEERS: dict[str, tuple[str, type[Competitor]]] = {
    BASELINE: ("PyTorch SGD", PlainSGD),
    "sgd_own_layers": ("PyTorch SGD, oso's layers", OwnLayersSGD),
    "opacus_hooks": ("Opacus, hooks", OpacusHooks),
    "opacus_ghost": ("Opacus, ghost", OpacusGhost),
    "torch_func": ("torch.func, vmap", TorchFunc),
    "jax": ("JAX, vmap + jit", Jax),
}


def competitor_names() -> list[str]:
    """What is measured unless others are named: the peers, and the paper's methods as ours."""
    return [*PEERS, *sorted(PAPER_METHODS, key=lambda name: (name != "online", name))]


def find_competitor(name: str) -> type[Competitor]:
    """The competitor of this name; OsoError names the allowed ones."""
    if name in PEERS:
        return PEERS[name][1]
    if name in method_names():
        return Ours
    allowed = ", ".join([*PEERS, *method_names()])
    raise OsoError(f"competitor {name!r}: not known; allowed are {allowed}")


def is_ours(name: str) -> bool:
    return name not in PEERS


def label(name: str, runs: int) -> str:
    """What people read: ours with the number of runs trained at once."""
    return f"oso {find_method(name).title}, R = {runs}" if is_ours(name) else PEERS[name][0]
