"""A precision is what it says: no switch of torch's and no variable changes it unseen."""

import pytest
import torch
from tests.gradients.one_run import OneRun
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients import PRECISIONS, GradientEngine, explain_slow, find_precision
from oso_dp.gradients.linear import LinearGradients
from oso_dp.gradients.precision import float32
from oso_dp.models.losses import cross_entropy
from oso_dp.training.loop import study_training, train

CPU = torch.device("cpu")
HERE = ["float32", "bfloat16"]  # those of a CPU


def switches() -> list[str]:
    return [
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.conv.fp32_precision,
        torch.backends.cudnn.rnn.fp32_precision,
        torch.backends.mkldnn.matmul.fp32_precision,
        torch.backends.mkldnn.conv.fp32_precision,
        torch.backends.mkldnn.rnn.fp32_precision,
    ]


def loosen(legacy: str = "medium") -> None:
    """Whatever could make float32 products less than that."""
    torch.set_float32_matmul_precision(legacy)
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.backends.mkldnn.conv.fp32_precision = "bf16"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision_switches_follow_operation(precision, monkeypatch) -> None:
    """On a GPU, TF32 is enabled for forward and backward products only, never for sums."""
    seen: dict[str, list[str]] = {}

    class Looking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen["forward"] = switches()
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen["backward"] = switches()
            return gradient

    class Look(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Looking.apply(x)

    original = LinearGradients.weighted_sums

    def weighted_sums(self, *arguments):
        seen["sums"] = switches()
        return original(self, *arguments)

    monkeypatch.setattr(LinearGradients, "weighted_sums", weighted_sums)
    model = nn.Sequential(nn.Linear(6, 5), Look(), nn.Linear(5, 3))
    engine = GradientEngine(model, cross_entropy, PRECISIONS[precision])
    loosen()
    found = OneRun(engine, torch.randn(engine.size), torch.rand(3, 6), torch.tensor([0, 1, 2]))
    found.norms()
    loosen()
    found.weighted_sums(torch.ones(1, 3))
    cuda = "tf32" if precision == "tf32" else "ieee"
    assert seen["forward"] == seen["backward"] == [cuda] * 3 + ["ieee"] * 3
    assert seen["sums"] == switches() == ["ieee"] * 6


@pytest.mark.parametrize("precision", HERE)
def test_train_autocast_has_no_effect(precision, arrays, make_task, make_run) -> None:
    task = make_task("online", precision=precision, steps=4)
    plain = train(task, [make_run()], arrays)[0].evaluations
    loosen()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = train(task, [make_run()], arrays)[0].evaluations
    assert inside == plain


@pytest.mark.parametrize("legacy", ["medium", "high"])
def test_float32_legacy_switch_set(legacy: str) -> None:
    """The legacy switch reports the same precision as the newer ones."""
    loosen(legacy)
    with float32(CPU):
        assert torch.get_float32_matmul_precision() == "highest"
        assert switches() == ["ieee"] * 6


def test_float32_autocast_restored() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with float32(CPU):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("name", "device", "environment", "message"),
    [
        ("float16", "cpu", {}, "'float16'; must be one of float32, tf32, bfloat16"),
        ("tf32", "cpu", {}, "'tf32'; must be float32 or bfloat16 on device cpu"),
        ("tf32", "mps", {}, "'tf32'; must be float32 or bfloat16 on device mps"),
        ("float32", "cpu", {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}, "FPMATH_MODE: BF16; changes"),
        ("bfloat16", "cpu", {"DNNL_DEFAULT_FPMATH_MODE": "any"}, "FPMATH_MODE: any; changes"),
        ("tf32", "cuda", {"NVIDIA_TF32_OVERRIDE": "0"}, "NVIDIA_TF32_OVERRIDE: 0; changes"),
        ("float32", "cuda", {"NVIDIA_TF32_OVERRIDE": "1"}, "NVIDIA_TF32_OVERRIDE: 1; changes"),
    ],
)
def test_find_precision_unsupported_setting_rejected(name, device, environment, message) -> None:
    with pytest.raises(OsoError, match=message):
        find_precision(name, torch.device(device), environment)


def test_find_precision_harmless_variables_accepted() -> None:
    strict = {"ONEDNN_DEFAULT_FPMATH_MODE": "strict", "PATH": "BF16"}
    assert find_precision("float32", CPU, strict).name == "float32"
    assert find_precision("tf32", torch.device("cuda"), {}).tf32


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_train_unsupported_precision_rejected(precision, arrays, make_task, make_run) -> None:
    with pytest.raises(OsoError, match=f"precision: '{precision}'"):
        train(make_task("online", precision=precision), [make_run()], arrays)


def test_explain_slow_cpu_without_bfloat16_warned(monkeypatch, arrays, make_task, make_run) -> None:
    able = {"amx_bf16": False, "avx512_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    reason = explain_slow(PRECISIONS["bfloat16"], CPU)
    assert reason is not None
    assert "lacks instructions" in reason
    assert "\n" not in reason
    assert explain_slow(PRECISIONS["float32"], CPU) is None
    assert explain_slow(PRECISIONS["bfloat16"], torch.device("cuda")) is None
    said: list[str] = []
    monkeypatch.setattr("oso_dp.training.loop.warn_once", lambda _, text: said.append(text))
    for precision in HERE:
        study_training(make_task("online", precision=precision), [make_run()], arrays)
    assert said == [reason]
    able["avx512_bf16"] = True
    assert explain_slow(PRECISIONS["bfloat16"], CPU) is None
