"""The precision of matrix products: float32, TF32 (CUDA), or bfloat16 factors.

A low precision applies to the products of the forward and backward pass and to those that form
per-sample gradients. The results are the gradients by definition: norms, weights and sums over
examples are computed from these values in float32. So no rounding separates what is measured from
what is summed, and clipping bounds the sensitivity as in float32.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oso_dp.errors import OsoError

# torch's switches for float32 products, through its one current interface.
_SWITCHES = (
    ("cuda", "matmul"),
    ("cuda", "conv"),
    ("cuda", "rnn"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)
# Libraries read these by themselves, past torch's switches; and the values that change nothing.
_VARIABLES = {
    "ONEDNN_DEFAULT_FPMATH_MODE": ("", "STRICT"),
    "DNNL_DEFAULT_FPMATH_MODE": ("", "STRICT"),
    "NVIDIA_TF32_OVERRIDE": ("",),
}


@dataclass(frozen=True)
class Precision:
    """`factors`: to which type a product's factors are rounded; None leaves them as they are."""

    name: str
    factors: torch.dtype | None = None
    tf32: bool = False

    @property
    def low(self) -> bool:
        return self.factors is not None or self.tf32

    def rounded(self, values: Tensor) -> Tensor:
        """What a product takes as its factor."""
        return values if self.factors is None else values.to(self.factors)

    @contextmanager
    def products(self, device: torch.device) -> Iterator[None]:
        """Inside, products are computed in this precision; outside, in float32."""
        with float32(device):
            if not self.tf32:
                yield
                return
            try:
                _switch(cuda="tf32")
                yield
            finally:
                _switch()


PRECISIONS = {
    switch.name: switch
    for switch in (
        Precision("float32"),
        Precision("tf32", tf32=True),
        Precision("bfloat16", factors=torch.bfloat16),
    )
}


@contextmanager
def float32(device: torch.device) -> Iterator[None]:
    """Inside, float32 means float32, whatever torch's switches and `torch.autocast` say outside."""
    _switch()
    kind = device.type
    on = torch.is_autocast_enabled(kind)
    with torch.autocast(kind, enabled=False) if on else nullcontext():
        yield


@contextmanager
def use_float32(device: torch.device) -> Iterator[None]:
    """As `float32`, and restore torch's switches afterwards, for use inside a user's script."""
    with restore_switches(), float32(device):
        yield


@contextmanager
def restore_switches() -> Iterator[Callable[[], None]]:
    """Afterwards torch's switches stand as before; the function puts them back at once."""
    legacy = torch.get_float32_matmul_precision()
    before = [_read(*switch) for switch in _SWITCHES]

    def put_back() -> None:
        torch.set_float32_matmul_precision(legacy)
        for switch, value in zip(_SWITCHES, before, strict=True):
            _write(*switch, value)

    try:
        yield put_back
    finally:
        put_back()


def find_precision(
    name: str, device: torch.device, environment: Mapping[str, str] = os.environ
) -> Precision:
    """The precision of this name; OsoError if device or environment do not support it."""
    if name not in PRECISIONS:
        raise OsoError(f"precision: {name!r}; must be one of {', '.join(PRECISIONS)}")
    precision = PRECISIONS[name]
    if precision.tf32 and device.type != "cuda":
        raise OsoError(f"precision: {name!r}; must be float32 or bfloat16 on device {device.type}")
    for variable, harmless in _VARIABLES.items():
        value = environment.get(variable, "")
        if value.upper() not in harmless:
            raise OsoError(
                f"environment variable {variable}: {value}; changes the precision of products, "
                "unset it"
            )
    return precision


def explain_slow(precision: Precision, device: torch.device) -> str | None:
    """One line if this device computes in this precision slowly; else None."""
    if precision.factors is None or device.type != "cpu":
        return None
    if _has_bfloat16_products():
        return None
    return (
        f"precision: {precision.name}; this CPU lacks instructions for it (AMX, AVX512-BF16), so "
        "it is slower than float32; results are correct"
    )


def _has_bfloat16_products() -> bool:
    if hasattr(torch.cpu, "get_capabilities"):
        able = torch.cpu.get_capabilities()
        return any(able.get(name) for name in ("amx_bf16", "amx_tile", "avx512_bf16"))
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")  # torch before 2.10
    return any(getattr(torch.cpu, name)() for name in names if hasattr(torch.cpu, name))


def _switch(cuda: str = "ieee") -> None:
    """Set torch's switches, where they differ."""
    legacy = "highest" if cuda == "ieee" else "high"
    if torch.get_float32_matmul_precision() != legacy:  # torch refuses two that contradict
        torch.set_float32_matmul_precision(legacy)
    for backend, operation in _SWITCHES:
        wanted = cuda if backend == "cuda" else "ieee"
        if _read(backend, operation) != wanted:
            _write(backend, operation, wanted)


# torch before 2.9 has switches for TF32 alone, one of matmul and one of cuDNN; its CPU products
# follow `set_float32_matmul_precision`.
_IS_CURRENT = hasattr(torch._C, "_get_fp32_precision_getter")


def _read(backend: str, operation: str) -> str:
    """A switch: "ieee", or what it lowers the precision to."""
    if _IS_CURRENT:
        value: str = torch._C._get_fp32_precision_getter(backend, operation)
        return value
    return "tf32" if backend == "cuda" and _tf32_switch(operation).allow_tf32 else "ieee"


def _write(backend: str, operation: str, value: str) -> None:
    if _IS_CURRENT:
        torch._C._set_fp32_precision_setter(backend, operation, value)
    elif backend == "cuda":
        _tf32_switch(operation).allow_tf32 = value == "tf32"


def _tf32_switch(operation: str) -> Any:
    return torch.backends.cuda.matmul if operation == "matmul" else torch.backends.cudnn
