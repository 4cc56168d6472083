"""Torch's and Python's global state is, after a training and in `evaluate`, what it was before."""

import random
import signal
import warnings

import dp_accounting.rdp  # noqa: F401  scipy adds filters of warnings when it is imported
import numpy as np
import pytest
import scipy.sparse  # noqa: F401
import torch
from torch import nn

OPERATIONS = [
    *(("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")),
    *(("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")),
]


def legacy() -> tuple[object, ...]:
    """What torch itself refuses to tell once the two interfaces contradict each other."""
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
    )


def gpu_states() -> list[object]:
    """Of their generators, or the seeds with which they are going to start."""
    if torch.cuda.is_initialized():
        return [one.tolist() for one in torch.cuda.get_rng_state_all()]
    return torch.cuda._lazy_seed_tracker.get_calls()


def state() -> dict[str, object]:
    precisions = {one: torch._C._get_fp32_precision_getter(*one) for one in OPERATIONS}
    return {
        **{"/".join(one): value for one, value in precisions.items()},
        "reduced": (
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        ),
        "cudnn": (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
        ),
        "mkldnn": torch.backends.mkldnn.enabled,
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "types": (torch.get_default_dtype(), torch.get_default_device()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": torch.is_anomaly_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "random": (
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),
        ),
        "gpus": gpu_states(),
        "signals": signal.getsignal(signal.SIGINT),
        "warnings": list(warnings.filters),
    }


def loosened() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.conv.fp32_precision = "bf16"


def by_the_new_interface() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    torch.backends.cuda.matmul.fp32_precision = "ieee"


def strict() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _put_back():
    before = {one: torch._C._get_fp32_precision_getter(*one) for one in OPERATIONS}
    matmul, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield
    torch.set_float32_matmul_precision(matmul)
    for one, value in before.items():
        torch._C._set_fp32_precision_setter(*one, value)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


class Failing(nn.Module):
    """A model that fails once it has trained for some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if (inputs == 77.0).any():
            raise ValueError("77")
        return self.layer(inputs)


SETTINGS = pytest.mark.parametrize("given", [loosened, by_the_new_interface, strict])


@SETTINGS
def test_train_private_keeps_global_state(train, given) -> None:
    given()
    before, inside = state(), []

    def evaluate(model: nn.Module) -> float:
        inside.append(state())
        return 0.5

    train(evaluate=evaluate, evaluate_every=3)
    after = state()
    assert len(inside) > 2
    for found in (after, *inside):
        # While it trains, Ctrl-C waits for the end of a step.
        differ = {name for name in before if found[name] != before[name]}
        assert differ <= ({"signals"} if found is not after else set())


@SETTINGS
def test_search_private_keeps_global_state(search, data, given) -> None:
    given()
    before, inside = state(), []

    def score(model: nn.Module) -> float:
        inside.append(state())
        return 0.5

    search(score=score)
    search(validation=data, grid={"learning_rate": [0.1, 1.0]})
    assert len(inside) == 3
    assert all(found == before for found in (state(), *inside))


@SETTINGS
def test_train_private_failure_keeps_global_state(train, data, given) -> None:
    inputs = data[0].clone()
    inputs[:, 0] = 77.0
    model = Failing()
    given()
    before = state()
    with pytest.raises(ValueError, match="77"):
        train(model=model, data=(inputs, data[1]))
    assert state() == before


def test_train_private_model_exported(train, data) -> None:
    """torch.export reads the legacy TF32 flags, and fails if the new flags contradict them."""
    torch.backends.cudnn.allow_tf32 = True  # as torch begins, whatever was computed before
    before = legacy()
    trained = train()
    assert legacy() == before
    exported = torch.export.export(trained.model, (data[0][:2],))
    torch.testing.assert_close(exported.module()(data[0][:2]), trained.model(data[0][:2]))


def test_search_private_scores_use_float32(search, data) -> None:
    loosened()
    seen = set()

    def right(outputs: torch.Tensor, target: torch.Tensor) -> float:
        seen.add(torch._C._get_fp32_precision_getter("mkldnn", "conv"))
        return 0.5

    search(validation=data, metric=right, grid={"learning_rate": [0.1]})
    assert seen == {"ieee"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "method",
    [
        {"method": "online"},
        {"method": "fixed_quantile", "quantile": 0.5},
        {"method": "adam_wosm", "threshold": 0.3},
    ],
)
def test_train_private_ignores_default_dtype(method, dtype, train) -> None:
    """A 16-bit default dtype, common in scripts for large models, rounds neither C nor noise."""
    options = {**method, "randomness": "seeded", "seed": 3}
    expected = train(**options)
    torch.set_default_dtype(dtype)
    try:
        trained = train(**options)
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(expected.model.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert trained.history == expected.history
    assert trained.epsilon == expected.epsilon
