"""Every competitor by name: the peers, and each method of the study as ours."""

from competitor import Competitor
from jax_peer import Jax
from opacus_peer import OnlineGhost, OnlineHooks, OpacusGhost, OpacusHooks
from ours import SYSTEM_NOISE, Ours
from plain_sgd import BFloat16SGD, ChannelsLastSGD, OwnLayersSGD, PlainSGD
from torch_func_peer import TorchFunc

from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, find_method, method_names

BASELINE = "sgd"
PEERS: dict[str, tuple[str, type[Competitor]]] = {
    BASELINE: ("PyTorch SGD", PlainSGD),
    "sgd_own_layers": ("PyTorch SGD, oso's layers", OwnLayersSGD),
    "sgd_channels_last": ("PyTorch SGD, channels last", ChannelsLastSGD),
    "sgd_bfloat16": ("PyTorch SGD, bfloat16", BFloat16SGD),
    "opacus_hooks": ("Opacus, hooks", OpacusHooks),
    "opacus_ghost": ("Opacus, ghost", OpacusGhost),
    "opacus_hooks_online": ("Opacus, hooks, oso Online", OnlineHooks),
    "opacus_ghost_online": ("Opacus, ghost, oso Online", OnlineGhost),
    "torch_func": ("torch.func, vmap", TorchFunc),
    "jax": ("JAX, vmap + jit", Jax),
}
# Ours with noise of the operating system's generator, as `train_private` draws it.
SYSTEM = [f"online{SYSTEM_NOISE}"]


def competitor_names() -> list[str]:
    """What is measured unless others are named: the peers, and the paper's methods as ours."""
    return [*PEERS, *sorted(PAPER_METHODS, key=lambda name: (name != "online", name)), *SYSTEM]


def find_competitor(name: str) -> type[Competitor]:
    """The competitor of this name; OsoError names the allowed ones."""
    if name in PEERS:
        return PEERS[name][1]
    if name in SYSTEM or name in method_names():
        return Ours
    allowed = ", ".join([*PEERS, *method_names(), *SYSTEM])
    raise OsoError(f"competitor: {name!r}; allowed are {allowed}")


def is_ours(name: str) -> bool:
    return name not in PEERS


def precision_of(name: str) -> str:
    """A peer's precision."""
    return "bfloat16" if name == "sgd_bfloat16" else "float32"


def label(name: str, runs: int, precision: str = "float32") -> str:
    """What people read: ours with the number of runs trained at once."""
    if not is_ours(name):
        return PEERS[name][0]
    low = "" if precision == "float32" else f", {precision}"
    noise = ", system noise" if name in SYSTEM else ""
    return f"oso {find_method(name.removesuffix(SYSTEM_NOISE)).title}{noise}, R = {runs}{low}"
