"""Every layer in every mode: the two sums of Online are those of one-at-a-time differentiation."""

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Recorded, loader_of, make
from tests.opacus.layers import CASES, REFUSED, alone
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients.layer_gradients import CHUNK_BYTES

NOT_TRIED = "ignore:module. not checked whether"
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
def test_the_sums_are_those_of_each_example_alone(name, mode, chunk, monkeypatch) -> None:
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

    if name in REFUSED[mode]:
        with pytest.raises(OsoError, match=REFUSED[mode][name]):
            run()
        return
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


@pytest.mark.parametrize("wrap_model", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_nobody_takes_a_step_wrapped_or_not(name, mode, wrap_model) -> None:
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("places", "count"), [(5, 5), (7, 4)])
def test_with_the_batch_second_the_sums_are_those_of_each_example_alone(
    places, count, mode
) -> None:
    class Second(nn.Module):
        """Of [T, N, 6]: a layer over the places, and their mean."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(6, 4), nn.Linear(4, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.last(self.layer(inputs).tanh()).mean(0)

    torch.manual_seed(0)
    model = Second().double()
    inputs = torch.randn(places, count, 6, dtype=torch.double)
    targets = torch.arange(count) % 2
    gradients = torch.stack(
        [
            torch.cat(
                [
                    part.flatten()
                    for part in torch.autograd.grad(
                        nn.functional.cross_entropy(
                            model(inputs[:, row : row + 1]), targets[row : row + 1]
                        ),
                        [*model.parameters()],
                    )
                ]
            )
            for row in range(count)
        ]
    )
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


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_without_gradient_has_its_noise_and_a_frozen_one_stays(mode) -> None:
    case = CASES["unused"]
    model = case.model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loader = loader_of(*case.examples(8), batch_size=4)
    made = make(mode=mode, model=model, loader=loader)
    for _ in range(3):
        made.step(*case.examples(5))
    moved = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert moved == {name for name in before if not name.startswith("frozen")}


@pytest.mark.parametrize("mode", MODES)
def test_bfloat16_autocast_keeps_an_example_within_the_threshold(mode) -> None:
    """Norm and sum are of one and the same gradient, whatever autocast rounded it to."""
    threshold = 0.05
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    case = CASES["linear"]
    inputs, targets = (
        values.float() if values.dim() > 1 else values for values in case.examples(20)
    )
    made = make(
        mode=mode, model=model, loader=loader_of(inputs, targets), max_grad_norm=threshold,
        noise=Recorded(), threshold_rate=0.0,
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layer", ["linear", "places", "convolution", "embedding", "norm"])
def test_a_bfloat16_model_keeps_an_example_within_the_threshold(layer, mode) -> None:
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
    )  # fmt: skip
    for one, target in zip(inputs, targets, strict=True):
        made.step(one[None], target[None])
        memory = made.optimizer.driver.state.buffers
        gradient, direction = (
            float(memory[key].double().norm()) * made.optimizer.batch_size for key in memory
        )
        assert gradient <= threshold * (1 + 1e-5)
        assert direction == pytest.approx(1.0, rel=1e-5) or direction == 0.0
