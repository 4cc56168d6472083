"""What an accelerator does otherwise than a CPU: streams, padding, norms, what is not finite.

Each test runs on a CPU through the same lines, and with `pytest -m gpu` on a CUDA device.
"""

import math
import traceback
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oso_dp import PrivateModel, train_private
from oso_dp.data.arrays import Arrays
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.gradients import GradientEngine, check_independence
from oso_dp.gradients.layer_gradients import row_norms
from oso_dp.models import MODELS, build_model
from oso_dp.models.losses import cross_entropy, squared_error
from oso_dp.privacy import philox
from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec, padded_length
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.loop import advance, study_training, train

HOST = torch.device("cpu")
SHAPES = {"bag_of_words": (750,), "bag_of_words_25": (1250,), "linear": (4096,)}
SHAPES["small_cnn"] = (1, 14, 14)


def shape_of(name: str) -> tuple[int, ...]:
    return SHAPES.get(name, (1, 28, 28))


@pytest.mark.parametrize("count", [1, 2, 7, 100_001])
@pytest.mark.parametrize("step", [1, 3000, 2**31 - 1])
def test_philox_normals_device_matches_host(device, count: int, step: int) -> None:
    noise = philox.normals(["a", "b"], "x", step, count, device)
    assert (noise.device.type, noise.dtype) == (device.type, torch.float64)
    torch.testing.assert_close(
        noise.cpu(), philox.normals(["a", "b"], "x", step, count, HOST), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("rate", [1e-12, 0.01, 0.4, 1.0])
def test_batch_rng_padded_batches_match_host(device, rate: float) -> None:
    sampling = PoissonSampling(rate)
    draws = BatchRNG(Seeded(), sampling, 1000, device)
    indices, present = draws.batches(["a", "b", "c"], 5)
    assert indices.device.type == present.device.type == device.type
    assert indices.shape == present.shape
    assert not indices[~present].any()
    for run in range(3):
        words = Seeded().words("abc"[run], "sampling", 5)
        expected = torch.from_numpy(sampling.draw(1000, words))  # the host's, on any device
        assert torch.equal(indices[run][present[run]].cpu(), expected)
    longest = int(present.sum(dim=1).max())
    assert indices.shape[1] == padded_length(longest, device)


def test_batch_rng_system_noise_differs(device) -> None:
    draws = BatchRNG(SystemEntropy(), PoissonSampling(0.5), 1000, device)
    nothing, noise = torch.zeros(1, 1000, device=device), NoiseSpec("noise", torch.ones(1))
    first, again = (draws.add_noise(["a"], 1, [nothing], [noise])[0] for _ in range(2))
    assert first.device.type == device.type
    assert not torch.equal(first, again)
    assert first.std().item() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("size", [1, 2**14 + 1, 100_000])
@pytest.mark.parametrize("scale", [1e-40, 1.0, 1e30])
def test_row_norms_extreme_scales_match_float64(device, size: int, scale: float) -> None:
    rows = torch.randn(3, size, generator=torch.Generator().manual_seed(size)) * scale
    expected = torch.linalg.vector_norm(rows.double(), dim=1)
    found = row_norms(rows.to(device)).cpu()
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=0.0)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_engine_matches_host_float64(device, name: str) -> None:
    torch.manual_seed(3)
    model = build_model(name)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    flats = flat + 0.01 * torch.randn(2, len(flat))
    inputs = torch.rand(2, 5, *shape_of(name))
    mse = name.startswith("autoencoder")
    targets = inputs if mse else torch.randint(0, 2, (2, 5))
    weights = torch.rand(2, 2, 5)
    engine = GradientEngine(model, squared_error if mse else cross_entropy)
    found = engine(flats.to(device), inputs.to(device), targets.to(device))
    inputs = inputs.double()
    right = engine(flats.double(), inputs, inputs if mse else targets)
    torch.testing.assert_close(found.norms().cpu().double(), right.norms(), rtol=1e-3, atol=0.0)
    sums, expected = found.weighted_sums(weights.to(device)).cpu(), right.weighted_sums(
        weights.double()
    )  # fmt: skip
    error = torch.linalg.vector_norm(sums - expected, dim=2)
    assert (error < 0.01 * torch.linalg.vector_norm(expected, dim=2)).all()


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("name", ["small_cnn", "bag_of_words"])
def test_gradient_engine_nonfinite_example_excluded(device, name: str, poison) -> None:
    torch.manual_seed(0)
    model = build_model(name).to(device)
    engine = GradientEngine(model, cross_entropy)
    flats = (0.1 * torch.randn(3, engine.size)).to(device)
    inputs = torch.rand(3, 4, *shape_of(name)).to(device)
    targets = torch.randint(0, 3, (3, 4)).to(device)
    weights = torch.rand(3, 2, 4).to(device)
    without = weights.clone()
    without[1, :, 2] = 0.0
    expected = engine(flats, inputs, targets).weighted_sums(without)
    inputs[1, 2] = poison
    mine = engine(flats, inputs, targets)
    assert mine.norms().isinf().nonzero().tolist() == [[1, 2]]
    torch.testing.assert_close(mine.weighted_sums(weights), expected, rtol=1e-3, atol=1e-4)


METHODS = ["online", "fixed_quantile", "fixed_quantile_per_layer", "no_dp"]


@pytest.mark.parametrize("name", METHODS)
def test_train_joint_runs_match_separate(device, name, arrays, make_task, make_run) -> None:
    starts = [make_run(f"r{i}", i, 0.02 + 0.005 * i, 1.0 + i) for i in range(3)]
    task = make_task(name, device=str(device))
    together = train(task, starts, arrays)
    alone = [train(task, [start], arrays)[0] for start in starts]
    for one, other in zip(together, alone, strict=True):
        assert one.ledger == other.ledger
        for a, b in zip(one.evaluations, other.evaluations, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)


def test_train_resumed_matches_uninterrupted(device, arrays, make_task, make_run, tmp_path) -> None:
    task, starts = make_task("online", device=str(device)), [make_run("a"), make_run("b", 1)]
    whole = train(task, starts, arrays)

    def kill(step: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    path = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        train(task, starts, arrays, checkpoint=path, fingerprint="f", on_progress=kill)
    resumed = train(task, starts, arrays, checkpoint=path, fingerprint="f")
    for one, other in zip(whole, resumed, strict=True):
        assert one.ledger == other.ledger
        for a, b in zip(one.evaluations, other.evaluations, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)


ASKED_IN = ["gradients.engine", "gradients.linear", "gradients.layer_gradients", "training.loop"]
READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select")


@pytest.fixture
def asynchronous(device, monkeypatch):
    """The host as a device for whose answers it has to wait."""
    for name in ASKED_IN:
        monkeypatch.setattr(f"oso_dp.{name}.is_async_device", lambda values: True)


class HostReads(TorchDispatchMode):
    """Counts where a value of the device is read; drawing batches is the host's own work."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.places: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.name() in READS and args[0].device.type == self.device.type:
            stack = [frame for frame in traceback.extract_stack() if "oso_dp" in frame.filename]
            if not any(frame.filename.endswith("batch_rng.py") for frame in stack):
                self.places[f"{stack[-1].filename}:{stack[-1].lineno}"] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.usefixtures("asynchronous")
@pytest.mark.parametrize("model", ["small_cnn", "bag_of_words"])
@pytest.mark.parametrize("name", [*METHODS, "fixed_threshold", "adam_wosm", "auto_s"])
def test_take_step_avoids_device_reads(
    device, name, model, arrays, make_task, make_run, monkeypatch
) -> None:
    if device.type == "cpu":  # a copy on the host may be read
        every_run = SimpleNamespace(all=lambda: True)
        monkeypatch.setattr("oso_dp.training.loop.read_later", lambda values: lambda: every_run)
    if model == "bag_of_words":
        arrays = as_vectors(arrays)
    task = make_task(name, device=str(device), model=model)
    training = study_training(task, [make_run("a"), make_run("b", 1)], arrays)
    training.take_step()
    reads = HostReads(device)
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        with reads:
            training.take_step()
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    assert not reads.places


def as_vectors(arrays: Arrays) -> Arrays:
    """Images as texts of 750 numbers and 4 classes."""
    found = []
    for images, targets in (
        (arrays.train_inputs, arrays.train_targets),
        (arrays.test_inputs, arrays.test_targets),
    ):
        found += [np.resize(images, (len(images), 750)), targets % 4]
    return Arrays(*found)


@pytest.mark.parametrize("at", [1, 11, 12])
@pytest.mark.parametrize("every", [1, 5, 12])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_train_divergence_detected_within_one_step(
    device, asynchronous, arrays, make_task, make_run, value, every, at
) -> None:
    model = build_model("small_cnn")
    bias = next(model.parameters()).numel()  # -inf there leaves the loss finite

    def spoil(state, answers) -> None:
        if state.step == at:
            state.parameters[1, bias] = value

    task = make_task("fixed_threshold", device=str(device), evaluate_every=every)
    starts = [make_run("a"), make_run("spoilt", 1), make_run("b", 2)]
    found = train(task, starts, arrays, watch=spoil)
    assert [one.status for one in found] == ["finished", "diverged", "finished"]
    is_evaluated = at % every == 0 or at == task.steps
    assert found[1].diverged_at == (at if is_evaluated else at + 1)
    assert Ledger.from_json(found[1].ledger).step_count == found[1].diverged_at
    assert not any(row["step"] >= at for row in found[1].evaluations)
    sound = train(task, [starts[0], starts[2]], arrays)
    for one, other in zip((found[0], found[2]), sound, strict=True):
        assert one.ledger == other.ledger
        losses = [[row["loss"] for row in each.evaluations] for each in (one, other)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_train_successive_divergences_both_detected(
    device, asynchronous, arrays, make_task, make_run
) -> None:
    model = build_model("small_cnn")
    bias = next(model.parameters()).numel()

    def spoil(state, answers) -> None:
        if state.step in (3, 4):
            state.parameters[state.step - 2, bias] = -math.inf

    task = make_task("fixed_threshold", device=str(device), steps=4, evaluate_every=4)
    starts = [make_run("a"), make_run("first", 1), make_run("second", 2)]
    found = train(task, starts, arrays, watch=spoil)
    assert [one.status for one in found] == ["finished", "diverged", "diverged"]
    assert [one.diverged_at for one in found] == [None, 4, 4]
    assert not found[2].evaluations


def test_advance_interrupt_at_divergence_records_diverged(
    device, asynchronous, arrays, make_task, make_run
) -> None:
    def spoil(state, answers) -> None:
        if state.step == 5:
            state.parameters[-1, 0] = math.nan

    def stop(step: int) -> None:
        if step == 5:
            raise InterruptedByUser("Ctrl-C")

    task = make_task("fixed_threshold", device=str(device), evaluate_every=12)
    both = study_training(task, [make_run("a"), make_run("spoilt", 1)], arrays, spoil)
    with pytest.raises(InterruptedByUser):  # the other one can go on
        advance(both, on_progress=stop)
    assert [one.status for one in both.outcomes] == ["running", "diverged"]
    alone = study_training(task, [make_run("spoilt", 1)], arrays, spoil)
    assert [one.status for one in advance(alone, on_progress=stop)] == ["diverged"]


@pytest.mark.parametrize("steps", [1, 3])
def test_train_private_diverged_checkpoint_stays_diverged(
    device, asynchronous, steps, tmp_path
) -> None:
    """The checkpoint is written before the divergence is detected."""
    told = []

    def again() -> PrivateModel:
        torch.manual_seed(0)
        return train_private(
            torch.nn.Linear(5, 2),
            torch.nn.CrossEntropyLoss(reduction="none"),
            (torch.randn(40, 5), torch.arange(40) % 2),
            epsilon=3.0,
            delta=1e-3,
            epochs=steps,
            method="fixed_threshold",
            threshold=1e30,
            learning_rate=1e30,
            evaluate=lambda model: told.append(model) or 0.0,
            checkpoint=tmp_path / "state",
            device=str(device),
            progress=False,
        )

    first, second = again(), again()
    assert (first.status, second.status) == ("diverged", "diverged")
    assert first.ledger == second.ledger
    assert not told
    assert all(values.isfinite().all() for values in second.model.parameters())


class Turned(torch.nn.Module):
    """Its second layer sees the examples the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 4), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).flip(0)).flip(0)


def test_check_independence_mixed_rows_raises(device) -> None:
    inputs = torch.zeros(0, 6, device=device)
    targets = torch.zeros(0, dtype=torch.int64, device=device)
    right, wrong = (
        GradientEngine(model, cross_entropy) for model in (torch.nn.Linear(6, 3), Turned())
    )
    flat = torch.randn(right.size, dtype=torch.double, device=device)
    check_independence(right, flat, inputs, targets)
    with pytest.raises(OsoError, match="between a batch of"):
        check_independence(wrong, torch.randn(wrong.size, device=device).double(), inputs, targets)
