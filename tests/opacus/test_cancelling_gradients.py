"""Whatever an example's places hold, and however they cancel, it adds no more than C to a sum.

The gradient of a sequence, a text or an image is a sum over places. Where these cancel, rounding
outgrows what is left: a norm that is measured one way, and a sum that is taken another way, then
differ by far more than C.
"""

from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Recorded, loader_of, make
from torch import Tensor, nn

from oso_dp.opacus.model_hooks import RULES
from oso_dp.opacus.optimizer import ONE_RUN
from oso_dp.opacus.per_sample_gradients import EmbeddingFactors, LinearFactors, PerSampleGradients
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient
from oso_dp.privacy.unnoised_sums import unnoised_sums

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

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
def test_places_that_cancel_add_no_more_than_the_threshold(
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", [False, True])
def test_a_whole_step_adds_no_more_than_the_threshold(words: bool, mode: str) -> None:
    """The same through make_private: targets above and below the outputs, by as much."""
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


def test_a_huge_factor_beside_a_tiny_one_adds_nothing() -> None:
    """A tiny weighted gradient keeps few bits, and the huge input multiplies what they are off."""
    for inputs, errors in ((1e38, 1e-44), (1e35, 1e-44), (1e-44, 1e38)):
        held = LinearFactors(torch.tensor([[[inputs]]]), torch.tensor([[[errors]]]))
        gradients = PerSampleGradients([held], [1], torch.float32, torch.device("cpu"))
        for threshold in (1e-12, 1e-9, 1e-7, 0.1):
            assert added(gradients, threshold) == [0.0, 0.0]


def test_what_is_measured_of_an_ordinary_batch_is_the_norm() -> None:
    """What the bounds add is far below anything that clipping could notice."""
    random = torch.Generator().manual_seed(0)
    inputs, errors = (torch.randn(9, 64, 200, generator=random) for _ in range(2))
    held = LinearFactors(inputs, errors)
    exact = (errors.double().mT @ inputs.double()).flatten(1).norm(dim=1)
    torch.testing.assert_close(held.norms(), exact, rtol=1e-4, atol=0.0)
    assert (held.norms() >= exact).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_step_computes_in_float32_and_leaves_the_scripts_switches(mode: str) -> None:
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
def test_places_that_cancel_are_as_long_as_rounding_may_leave(kind, places: int) -> None:
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
