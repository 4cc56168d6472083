"""Clipped sums: those of one-at-a-time differentiation, and at most C of each example."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import (
    MODES,
    NOT_TRIED,
    QUIET,
    Recorded,
    examples,
    loader_of,
    make,
    refused,
)
from tests.opacus.layer_cases import CASES, alone
from torch import Tensor, nn

from oso_dp.gradients.layer_gradients import CHUNK_BYTES
from oso_dp.opacus.layer_rules import RULES
from oso_dp.opacus.model_hooks import _rounded_to
from oso_dp.opacus.optimizer import ONE_RUN
from oso_dp.opacus.per_sample_gradients import (
    Dense,
    EmbeddingFactors,
    LinearFactors,
    PerSampleGradients,
)
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient
from oso_dp.privacy.unnoised_sums import unnoised_sums

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


COUNT = 6


CONVOLUTIONS = [name for name in CASES if name.startswith("conv")]


@pytest.mark.parametrize(
    ("name", "mode", "chunk"),
    [
        *((name, mode, None) for name in CASES for mode in MODES),
        *((name, "ghost", chunk) for name in CONVOLUTIONS for chunk in (1, 10_000)),
    ],
)
def test_optimizer_sums_match_single_examples(name, mode, chunk, monkeypatch) -> None:
    """chunk: bytes of kernels that are formed together, fewer than for the whole batch."""
    if chunk is not None:
        monkeypatch.setitem(CHUNK_BYTES, "cpu", chunk)
    case = CASES[name]
    inputs, targets = case.examples(COUNT)
    gradients = alone(case.model(), inputs, targets)
    norms = gradients.norm(dim=1)
    threshold = float(norms.median()) * 1.01  # some are clipped, some are not
    expected = (gradients * (threshold / norms).clamp(max=1.0)[:, None]).sum(dim=0)
    directions = (gradients / norms[:, None])[norms > threshold].sum(dim=0)

    def run():
        loader = loader_of(inputs, targets, batch_size=2)
        return make(
            mode=mode, model=case.model(), loader=loader, max_grad_norm=threshold, noise=Recorded()
        )

    made = run()
    made.step(*case.examples(0))  # an empty batch first: a step like any other
    made.optimizer.driver.state.buffers.clear()
    made.step(inputs, targets)
    memory = made.optimizer.driver.state.buffers
    size = made.optimizer.batch_size
    scale = float(expected.abs().max())
    torch.testing.assert_close(memory["gradient"][0] * size, expected, rtol=1e-9, atol=1e-9 * scale)
    torch.testing.assert_close(memory["direction"][0] * size, directions, rtol=1e-9, atol=1e-9)
    assert sum(norms > threshold) > 0


@pytest.mark.parametrize(
    ("name", "wrap_model"), [("attention", True), ("attention", False), ("lstm", True)]
)
def test_optimizer_empty_batch_accepted(name, mode, wrap_model) -> None:
    """Opacus's attention fails on a batch of no examples."""
    case = CASES[name]
    inputs, targets = case.examples(COUNT)
    outcomes = []
    for counts in ((0, COUNT, 0), (COUNT,)):
        made = make(
            mode=mode, model=case.model(), loader=loader_of(inputs, targets, batch_size=2),
            noise=Recorded(), wrap_model=wrap_model, threshold_rate=0.0,
        )  # fmt: skip
        for count in counts:
            assert len(made.model(inputs[:count])) == count
            made.optimizer.start_over()
            made.step(inputs[:count], targets[:count])
            made.model.eval()
            assert len(made.model(inputs[:count])) == count
            made.model.train()
        assert made.optimizer.ledger.step_count == len(counts)
        outcomes.append(torch.cat([p.detach().flatten() for p in made.optimizer.params]))
    torch.testing.assert_close(*outcomes, rtol=1e-12, atol=1e-12)


class BatchSecond(nn.Sequential):
    """Of [T, N, 6]: a layer over the places, and their mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).mean(0)


class BatchFirst(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.transpose(0, 1))


@pytest.mark.parametrize(("places", "count"), [(5, 5), (7, 4)])
def test_optimizer_batch_second_matches_alone(places, count, mode) -> None:
    torch.manual_seed(0)
    model = BatchSecond(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs = torch.randn(places, count, 6, dtype=torch.double)
    targets = torch.arange(count) % 2
    gradients = alone(BatchFirst(model), inputs.transpose(0, 1), targets)
    norms = gradients.norm(dim=1)
    threshold = float(norms.median()) * 1.01
    made = make(
        mode=mode, model=model, loader=loader_of(inputs.transpose(0, 1), targets, batch_size=2),
        batch_first=False, max_grad_norm=threshold, noise=Recorded(),
    )  # fmt: skip
    made.step(inputs, targets)
    expected = (gradients * (threshold / norms).clamp(max=1.0)[:, None]).sum(dim=0)
    mean = made.optimizer.driver.state.buffers["gradient"][0]
    torch.testing.assert_close(mean * made.optimizer.batch_size, expected, rtol=1e-9, atol=1e-12)


def test_optimizer_unused_parameter_noised(mode) -> None:
    case = CASES["unused"]
    model = case.model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loader = loader_of(*case.examples(8), batch_size=4)
    made = make(mode=mode, model=model, loader=loader)
    for _ in range(3):
        made.step(*case.examples(5))
    moved = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert moved == {name for name in before if not name.startswith("frozen")}


def low_precision(mode: str) -> str:
    """The reduction that a mode takes for gradients of fewer digits than float32's."""
    return "mean" if mode == "ghost" else "sum"


def test_optimizer_autocast_example_within_threshold(mode) -> None:
    """Norm and sum are of one and the same gradient, whatever autocast rounded it to."""
    threshold = 0.05
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    case = CASES["linear"]
    inputs, targets = (
        values.float() if values.dim() > 1 else values for values in case.examples(20)
    )
    made = make(
        mode=mode, model=model, loader=loader_of(inputs, targets), max_grad_norm=threshold,
        noise=Recorded(), threshold_rate=0.0, loss_reduction=low_precision(mode),
    )  # fmt: skip
    for one, target in zip(inputs, targets, strict=True):
        made.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = made.criterion(made.model(one[None]), target[None])
        loss.backward()
        made.optimizer.step()
        memory = made.optimizer.driver.state.buffers
        assert memory["gradient"].dtype == torch.float32
        gradient, direction = (
            float(memory[key].norm()) * made.optimizer.batch_size for key in memory
        )
        assert gradient <= threshold * (1 + 1e-5)
        assert direction == pytest.approx(1.0, rel=1e-5) or direction == 0.0


@pytest.mark.parametrize("layer", ["linear", "places", "convolution", "embedding", "norm"])
def test_optimizer_bfloat16_example_within_threshold(layer, mode) -> None:
    """Its gradients have eight bits; their norms, weights and sums must have more."""
    torch.manual_seed(0)
    threshold, shape = 0.05, (12, 6)
    parts: dict[str, list[nn.Module]] = {
        "linear": [nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)],
        "places": [nn.Unflatten(1, (3, 2)), nn.Linear(2, 5), nn.Flatten(), nn.Linear(15, 3)],
        "convolution": [nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(6, 3)],
        "embedding": [nn.Embedding(7, 4), nn.Flatten(), nn.Linear(24, 3)],
        "norm": [nn.LayerNorm(6), nn.Linear(6, 3)],
    }
    model = nn.Sequential(*parts[layer]).bfloat16()
    inputs = 3 * torch.randn(shape, dtype=torch.bfloat16)
    if layer == "embedding":
        inputs = torch.randint(7, shape)
    targets = torch.randint(3, (len(inputs),))
    made = make(
        mode=mode, model=model, loader=loader_of(inputs, targets, batch_size=6),
        max_grad_norm=threshold, noise=Recorded(), threshold_rate=0.0,
        loss_reduction=low_precision(mode),
    )  # fmt: skip
    for one, target in zip(inputs, targets, strict=True):
        made.step(one[None], target[None])
        memory = made.optimizer.driver.state.buffers
        gradient, direction = (
            float(memory[key].double().norm()) * made.optimizer.batch_size for key in memory
        )
        assert gradient <= threshold * (1 + 1e-5)
        assert direction == pytest.approx(1.0, rel=1e-5) or direction == 0.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_optimizer_added_example_within_threshold(autocast, dtype, mode) -> None:
    """A mean's 1 / n is rounded, alike for all: the sum of 500 below C would move by 2 C."""
    count = 500
    inputs = torch.cat([torch.ones(count, 6), -torch.ones(1, 6)])
    targets = torch.cat([torch.zeros(count).long(), torch.ones(1).long()])

    def clipped_sum(size: int, threshold: float) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(6, 3).to(torch.float32 if autocast else dtype)
        rows = inputs.to(model.weight.dtype)
        made = make(
            mode=mode, model=model, loader=loader_of(rows, targets), max_grad_norm=threshold,
            loss_reduction=low_precision(mode),
        )  # fmt: skip
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            loss = made.criterion(made.model(rows[:size]), targets[:size])
        loss.backward()
        made.optimizer.clip_and_accumulate()
        return made.optimizer._totals[0].double()

    threshold = 1.02 * float(clipped_sum(1, 1e6).norm())
    difference = clipped_sum(count + 1, threshold) - clipped_sum(count, threshold)
    assert float(difference.norm()) <= threshold * (1 + 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_model_hooks_low_precision_mean_rejected(mode, dtype) -> None:
    inputs, targets = examples()
    model = nn.Linear(6, 3).to(dtype)
    made = make(mode=mode, model=model, loader=loader_of(inputs.to(dtype), targets))
    message = "use grad_sample_mode='ghost', or loss_reduction='sum'"
    refused(lambda: made.step(inputs[:5].to(dtype), targets[:5]), message, made)


class Stage(nn.Module):
    """A trained layer in float32, and what follows it in bfloat16."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.trained, self.frozen, self.what = nn.Linear(6, 5), nn.Linear(5, 3), what
        self.frozen.requires_grad_(False)
        if what in ("layer", "first"):
            self.frozen.bfloat16()
        if what == "first":
            self.trained, self.frozen = nn.Linear(5, 3), nn.Linear(6, 5).bfloat16()
            self.frozen.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.what == "first":
            return self.trained(self.frozen(inputs.bfloat16()).float())
        hidden = self.trained(inputs).tanh()
        if self.what == "layer":
            return self.frozen(hidden.bfloat16()).float()
        if self.what == "cast":
            hidden = hidden.bfloat16().float()
        return self.frozen(hidden)


@pytest.mark.parametrize(
    ("what", "is_refused"),
    [("layer", True), ("cast", True), ("autocast", True), ("loss", True), ("plain", False),
     ("first", False)],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_model_hooks_mean_through_low_precision_rejected(mode, what, is_refused) -> None:
    """Also in frozen layers, casts and losses behind trained layers."""
    inputs, targets = examples()
    made = make(mode=mode, model=Stage(what), loader=loader_of(inputs, targets))

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=what == "autocast"):
            outputs = made.model(inputs[:5])
        outputs = outputs.bfloat16() if what == "loss" else outputs.float()
        nn.functional.cross_entropy(outputs, targets[:5]).backward()

    if is_refused:
        refused(step, "use grad_sample_mode='ghost', or loss_reduction='sum'", made)
    else:
        step()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounded_to_names_low_precision(dtype, scale) -> None:
    """Whatever the size of the gradient; a type in which it would be 0 or infinite is left out."""
    gradient = (scale * torch.tensor([0.0, 1.0, -0.7]) / 5).to(dtype).float()
    is_low = dtype.itemsize < 4 and bool(gradient.isfinite().all() and gradient.any())
    assert (_rounded_to(gradient, 5) is not None) == is_low
    assert _rounded_to(gradient, 8) is None  # 1 / 8 is exact


PLACES, ALLOWED = 64, 1 + 1e-5


SCALES = [1e-3, 1e3, 1e6, 1e8, 1e11]  # of the output gradients


def pairs_that_cancel(shape: tuple[int, ...], scale: float, random: torch.Generator) -> Tensor:
    """Output gradients [1, PLACES, *shape]: each has its opposite somewhere."""
    half = scale * torch.randn(1, PLACES // 2, *shape, generator=random)
    order = torch.randperm(PLACES, generator=random)
    return torch.cat([half, -half], dim=1)[:, order]


def a_sequence(scale: float, random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    layer = nn.Linear(80, 70)
    inputs = torch.randn(1, 1, 80, generator=random).expand(1, PLACES, 80)
    return layer, inputs, pairs_that_cancel((70,), scale, random)


def a_wide_sequence(scale: float, random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    """So wide that factors are held."""
    layer = nn.Linear(200, 200)
    inputs = torch.randn(1, 1, 200, generator=random).expand(1, PLACES, 200)
    return layer, inputs, pairs_that_cancel((200,), scale, random)


def a_text(scale: float, random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    """One word, again and again."""
    words = torch.ones(1, PLACES, dtype=torch.long)
    return nn.Embedding(5, 64), words, pairs_that_cancel((64,), scale, random)


def an_image(scale: float, random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    """Of one grey, under a kernel so large that factors are held."""
    layer = nn.Conv2d(64, 64, 3)
    inputs = torch.randn(1, 64, 1, 1, generator=random).expand(1, 64, 10, 10)
    errors = pairs_that_cancel((64,), scale, random)  # 8 x 8 places
    return layer, inputs, errors.transpose(1, 2).unflatten(2, (8, 8)).contiguous()


def added(held: PerSampleGradients, threshold: float) -> list[float]:
    """What the batch adds to both sums, in multiples of their sensitivities."""
    bound = torch.tensor([threshold])
    queries = [ClippedGradient(1.0, bound), ClippedDirection(1.0, bound)]
    present = torch.ones(1, held.size, dtype=torch.bool)
    gradient, direction = unnoised_sums(queries, ONE_RUN, held, present)
    return [float(gradient.double().norm()) / threshold, float(direction.double().norm())]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("build", [a_sequence, a_wide_sequence, a_text, an_image])
def test_per_sample_gradients_cancelling_within_threshold(
    build: Callable[[float, torch.Generator], tuple[nn.Module, Tensor, Tensor]], scale: float
) -> None:
    for seed in range(8):
        random = torch.Generator().manual_seed(seed)
        layer, inputs, errors = build(scale, random)
        for parameter, held in RULES[type(layer)](layer, inputs, errors):
            gradients = PerSampleGradients(
                [held], [parameter.numel()], torch.float32, torch.device("cpu")
            )
            measured = float(gradients.norms())
            assert measured < 1e18  # none is left out for that
            for threshold in (1e-3, 0.1, 10.0, max(measured, 1e-3)):
                assert max(added(gradients, threshold)) <= ALLOWED


@pytest.mark.parametrize("words", [False, True])
def test_optimizer_cancelling_places_within_threshold(words: bool, mode: str) -> None:
    random = torch.Generator().manual_seed(0)
    layer, inputs, errors = (a_text if words else a_wide_sequence)(1e7, random)
    targets = (layer(inputs) + errors).detach()

    class Squares(nn.Module):
        reduction = "sum"

        def forward(self, outputs: Tensor, wanted: Tensor) -> Tensor:
            losses = ((outputs - wanted) ** 2).flatten(1).sum(dim=1)
            return losses if self.reduction == "none" else losses.sum()

    loader = loader_of(inputs.contiguous(), targets, batch_size=1)
    made = make(
        mode=mode, model=layer, loader=loader, criterion=Squares(), loss_reduction="sum",
        max_grad_norm=0.1, noise=Recorded(),
    )  # fmt: skip
    before = torch.cat([p.detach().flatten().clone() for p in made.optimizer.params])
    made.step(inputs, targets)
    after = torch.cat([p.detach().flatten() for p in made.optimizer.params])
    # Moved by rate x sum; the rate is 0.1, the sum at most C.
    assert float((after - before).norm()) <= 0.1 * 0.1 * (1 + 1e-4)


def test_linear_factors_huge_factor_dropped() -> None:
    """A tiny weighted gradient keeps few bits, and the huge input multiplies what they are off."""
    for inputs, errors in ((1e38, 1e-44), (1e35, 1e-44), (1e-44, 1e38)):
        held = LinearFactors(torch.tensor([[[inputs]]]), torch.tensor([[[errors]]]))
        gradients = PerSampleGradients([held], [1], torch.float32, torch.device("cpu"))
        for threshold in (1e-12, 1e-9, 1e-7, 0.1):
            assert added(gradients, threshold) == [0.0, 0.0]


def test_optimizer_float32_switches_restored(mode: str) -> None:
    def switches() -> list[str]:
        places = [(kind, of) for kind in ("cuda", "mkldnn") for of in ("matmul", "conv", "rnn")]
        return [
            torch.get_float32_matmul_precision(),
            *(torch._C._get_fp32_precision_getter(*place) for place in places),
        ]

    seen = []

    class Watching(PerSampleGradients):
        def weighted_sums(self, *arguments):
            seen.append(switches())
            return super().weighted_sums(*arguments)

    made = make(mode=mode)
    inputs, targets = made.loader.dataset.tensors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oso_dp.opacus.optimizer.PerSampleGradients", Watching)
        try:
            torch.set_float32_matmul_precision("medium")
            wanted = switches()
            made.step(inputs[:7], targets[:7])
            assert switches() == wanted
        finally:
            torch.set_float32_matmul_precision("highest")
    assert seen
    for one in seen:
        assert one[0] == "highest"
        assert set(one[1:]) == {"ieee"}


@pytest.mark.parametrize("places", [2, 10, 1000])
@pytest.mark.parametrize("kind", ["sequence", "text"])
def test_factored_cancelling_norms_include_rounding(kind, places: int) -> None:
    """Of so many places as there are: (T + 1) 2^-24 of the sum of their norms."""
    outputs = torch.ones(3, places, 1)
    outputs[:, 1::2] = -1.0
    words = torch.zeros(3, places, dtype=torch.int64)
    held = (
        LinearFactors(torch.ones(3, places, 1), outputs)
        if kind == "sequence"
        else EmbeddingFactors(words, outputs, 5, None)
    )
    assert (held.norms() >= (places + 1) * 2.0**-24 * places).all()


@pytest.mark.parametrize("rest", [1e-2, 1e-4, 1e-5, 3e-6])
@pytest.mark.parametrize("kind", ["sequence", "text"])
def test_factored_nearly_cancelling_norm_not_underestimated(kind, rest) -> None:
    """Squares in float32 are off by 2^-24 of all places' product, and their root by far more."""
    random = torch.Generator().manual_seed(0)
    places = torch.randn(200, 32, 20, generator=random)
    errors = torch.cat([places, -places], dim=1)
    errors[:, 0] += rest * 64 * torch.randn(200, 20, generator=random)
    if kind == "sequence":
        inputs = torch.randn(200, 1, 30, generator=random).repeat(1, 64, 1)
        held, exact = LinearFactors(inputs, errors), errors.double().mT @ inputs.double()
    else:
        words = torch.zeros(200, 64, dtype=torch.int64)
        held, exact = EmbeddingFactors(words, errors, 5, None), errors.double().sum(dim=1)
    assert (held.norms() >= exact.flatten(1).norm(dim=1)).all()


CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [1, 9, 70, 300])
def test_per_sample_gradients_all_parameters_summed(count: int) -> None:
    torch.manual_seed(0)
    held: list = []
    for number in range(count):
        if number % 2:
            inputs, outputs = torch.randn(4, 1, 2).double(), torch.randn(4, 1, 3).double()
            held.append(LinearFactors(inputs, outputs))
        else:
            held.append(Dense(torch.randn(4, 3, 2), torch.double))
    held.insert(count // 2, None)
    gradients = PerSampleGradients(held, [6] * (count + 1), torch.double, CPU)
    rows = gradients.weighted_sums(torch.eye(4).double()[None])[0]
    assert rows.shape == (4, 6 * (count + 1))
    assert rows.count_nonzero() == 4 * 6 * count
    torch.testing.assert_close(gradients.norms()[0], rows.norm(dim=1), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("place", ["first", "last"])
def test_per_sample_gradients_nan_example_dropped(count, place) -> None:
    torch.manual_seed(0)
    values = [torch.randn(4, 2) for _ in range(count)]
    values[0 if place == "first" else -1][2, 1] = math.nan
    gradients = PerSampleGradients(
        [Dense(v, torch.float) for v in values], [2] * count, torch.float, CPU
    )
    assert gradients.norms()[0].isinf().tolist() == [False, False, True, False]
    rows = gradients.weighted_sums(torch.eye(4)[None])[0]
    assert rows.isfinite().all()
    assert not rows[2].any()
