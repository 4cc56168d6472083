"""Attacks on the drop-in that reviews found, each as a test."""

from itertools import chain, islice

import numpy as np
import pytest
import torch
from opacus.data_loader import DPDataLoader
from tests.opacus.helpers import (
    NOT_TRIED,
    QUIET,
    Made,
    Recorded,
    examples,
    in_pieces,
    loader_of,
    make,
    network,
    parameters_of,
    refused,
    untried_loader,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.opacus.sampler import install_sampler

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


class Squares(nn.Module):
    """One loss of each example, however many outputs it has."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "sum"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = (outputs - targets).flatten(1).square().sum(dim=1)
        return losses if self.reduction == "none" else losses.sum()


class Drawing(nn.Module):
    """Drops numbers out, and, if it mixes, subtracts the batch's mean."""

    def __init__(self, mixes: bool = False, own: bool = False) -> None:
        super().__init__()
        self.linear, self.mixes = nn.Linear(6, 3), mixes
        self.generator = np.random.default_rng(0) if own else None

    def forward(self, inputs: Tensor) -> Tensor:
        kept = nn.functional.dropout(inputs, 0.1)
        if self.generator is not None:
            kept = kept * float(self.generator.random())
        return self.linear(kept - kept.mean(dim=0) if self.mixes else kept)


class Leaning(nn.Module):
    """Drops numbers out, and adds to an example half of those before it, or of those after it."""

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self.linear, self.backwards = nn.Linear(6, 3), backwards

    def forward(self, inputs: Tensor) -> Tensor:
        kept = nn.functional.dropout(inputs, 0.1)
        if self.backwards:
            kept = kept.flip(0)
        mixed = self.linear(kept + 0.5 * (kept.cumsum(0) - kept))
        return mixed.flip(0) if self.backwards else mixed


class ByClass(nn.Module):
    """Weighs an example by how many of its batch are of its class."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        losses = losses / targets.bincount(minlength=3)[targets]
        return losses if self.reduction == "none" else losses.mean()


@pytest.mark.parametrize("layer", ["linear", "convolution"])
def test_optimizer_long_gradient_within_sensitivity(layer) -> None:
    """float32 sums of a million equal squares come out too small, and so would the norm."""
    model: nn.Module = nn.Linear(1000, 1000, bias=False)
    shape: tuple[int, ...] = (2, 1000)
    if layer == "convolution":
        model, shape = nn.Conv1d(1000, 1000, 1, bias=False), (2, 1000, 1)
    nn.init.constant_(model.weight, 1e-2)
    inputs, targets = torch.full(shape, 0.7), torch.zeros(shape)
    made = make(
        mode="hooks" if layer == "linear" else "ghost", model=model, criterion=Squares(),
        loader=loader_of(inputs, targets, batch_size=1), loss_reduction="sum", noise=Recorded(),
        max_grad_norm=1.0, threshold_rate=0.0,
    )  # fmt: skip
    made.step(inputs[:1], targets[:1])
    for mean in made.optimizer.driver.state.buffers.values():
        total = float(mean.double().norm()) * made.optimizer.batch_size
        assert total == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("frozen", "wrap_model"), [(None, True), (None, False), (0, True), (2, True)]
)
def test_model_hooks_two_calls_rejected(mode, frozen, wrap_model) -> None:
    """Row i would be of example i of both calls: its clip would bound neither."""
    model = network()
    if frozen is not None:
        model[frozen].requires_grad_(False)
    made = make(mode=mode, model=model, wrap_model=wrap_model)
    inputs, targets = examples(count=4)

    def add_up() -> None:
        loss = made.criterion(made.model(inputs[:2]), targets[:2])
        (loss + made.criterion(made.model(inputs[2:]), targets[2:])).backward()

    refused(add_up, "training mode has no backward pass; call the model once per", made)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Drawing(mixes=True), "outputs depend on other examples"),
        (lambda: Leaning(False), "outputs depend on other examples"),
        (lambda: Leaning(True), "outputs depend on other examples"),
        (lambda: Drawing(own=True), "differ after torch.manual_seed"),
        (Drawing, None),
    ],
)
def test_check_independence_unsafe_randomness_rejected(build, message, mode) -> None:
    if message is None:
        make(mode=mode, model=build())
        return
    refused(lambda: make(mode=mode, model=build()), message)


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_ghost_criterion_slight_mixing_rejected(share: float) -> None:
    """By their targets, of which no gradient tells."""

    class Alike(ByClass):
        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
            losses = losses * (1 + share * (targets == targets[0]).double().mean())
            return losses if self.reduction == "none" else losses.mean()

    made = make("online", "ghost", network(double=True), criterion=Alike())
    inputs, _ = examples(double=True, count=4)
    refused(lambda: made.step(inputs, torch.tensor([0, 1, 1, 2])), "loss depends on oth", made)


@pytest.mark.parametrize("steps", [0, 1])
def test_model_hooks_partial_call_rejected(steps: int) -> None:
    """Its places would pass for examples, with nothing to be compared with."""
    made = make()
    inputs, targets = examples(count=4)
    for _ in range(steps):
        made.step(inputs, targets)
    made.model._module[0](inputs).sum().backward()
    refused(made.optimizer.step, "call the model itself", made, steps)


def test_start_over_drops_abandoned_loop(mode) -> None:
    """With every example in each batch, a piece that counts twice is one too many; what was said
    of a piece that was fetched and not taken would end the next batch a piece too late."""
    inputs, targets = examples(double=True, count=12)
    outcomes = []
    for fetched, taken in ((0, 0), (1, 0), (2, 0), (2, 2)):
        made = make(
            mode=mode, model=network(double=True), noise=Recorded(),
            loader=loader_of(inputs, targets, batch_size=12),
        )  # fmt: skip
        for fetch, take in ((fetched, taken), (None, 12)):
            with in_pieces(made, 4) as loader:
                for place, batch in enumerate(islice(loader, fetch)):
                    if place < take:
                        made.step(*batch)
        assert made.optimizer.ledger.step_count == 1
        outcomes.append(parameters_of(made.optimizer))
    for outcome in outcomes[1:]:
        torch.testing.assert_close(outcome, outcomes[0], rtol=1e-12, atol=1e-12)


def begun(seed: int, trainings: int) -> list[Made]:
    """Trainings that a script begins one after the other after it set its seed."""
    models = [network() for _ in range(trainings)]  # they set the seed, too
    torch.manual_seed(seed)
    return [make(model=model) for model in models]


def drawn_by(made: Made) -> tuple[list[float], list[list[int]]]:
    """Noise, and the batches of a loop."""
    noise = made.optimizer.noise("noise", 1.0, [torch.empty(9)])
    return noise.tolist(), list(made.loader.batch_sampler)


def test_make_private_trainings_draw_independently() -> None:
    """With equal noise, the difference of what two of them release would be exact; nor does a seed
    that is set within the loop repeat anything."""
    made = begun(5, 3)
    drawn = [drawn_by(one) for one in made]
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(drawn_by(made[0]))
    noises, batches = zip(*drawn, strict=True)
    assert len({number for noise in noises for number in noise}) == 45
    assert len({str(one) for one in batches}) == 5


def test_make_private_global_seed_ignored() -> None:
    """Batches that everybody knows are no samples: the price of a step would be too low. And of two
    runs that share their noise, with another C each, the difference would have none."""
    noises, batches = zip(*(drawn_by(*begun(seed, 1)) for seed in (5, 5, 6)), strict=True)
    assert len({number for noise in noises for number in noise}) == 27
    assert batches[0] != batches[1] != batches[2] != batches[0]


def test_make_private_given_generators_repeat() -> None:
    def run(seed: int) -> tuple[list[float], list[list[int]]]:
        generator = torch.Generator().manual_seed(seed)
        loader = loader_of(*examples(), seed=seed)
        return drawn_by(make(noise_generator=generator, loader=loader))

    first, again, other = (run(seed) for seed in (5, 5, 6))
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_make_private_loader_generator_alone_not_repeated() -> None:
    """Epsilon is that of independent batches, and the noise does not repeat either."""
    (_, one), (_, other) = (drawn_by(make(loader=loader_of(*examples(), seed=5))) for _ in "ab")
    assert one != other


def test_derived_generator_same_seed_differs() -> None:
    """Normals of a generator that is seeded as the loader's are made of the batch's numbers."""
    for seed in range(5):
        own = torch.Generator().manual_seed(seed)
        given = torch.Generator().manual_seed(seed)
        made = make(noise_generator=given, loader=loader_of(*examples(), seed=seed))
        noise, _ = drawn_by(made)
        same = torch.randn(200, generator=own, dtype=torch.double)
        assert not set(noise) & set(same.tolist())
        assert made.optimizer.noise.generator is not given


def test_seeded_generator_wide_seeds_drawn() -> None:
    made = begun(5, 20)
    generators = [one.optimizer.noise.generator for one in made]
    generators += [one.loader.batch_sampler.generator for one in made]
    seeds = {generator.initial_seed() for generator in generators}
    assert len(seeds) == 40
    assert max(seeds) > 2**60


@pytest.mark.parametrize("seeded", [True, False])
def test_sampler_resumed_run_draws_afresh(seeded) -> None:
    drawn = []
    saved = make().optimizer.state_dict()
    for _ in range(2):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(5) if seeded else None
        data = TensorDataset(*examples())
        made = make(loader=DataLoader(data, batch_size=12, generator=generator))
        made.optimizer.load_state_dict(saved)
        torch.manual_seed(0)
        drawn.append(list(made.loader.batch_sampler))
    assert drawn[0] != drawn[1]


def test_get_epsilon_missing_steps_rejected() -> None:
    first, second = make(), make()
    first.step(*examples(count=3))
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert first.engine.get_epsilon(1e-5) > 0
    refused(lambda: second.engine.get_epsilon(1e-5), "ledgers have 1 steps, the accountant has 0")


def test_get_epsilon_earlier_training_counted() -> None:
    loader, model = loader_of(*examples()), network()
    made = make(loader=loader)
    made.step(*examples(count=3))
    made.engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=0.5,
    )
    assert made.engine.get_epsilon(1e-5) > 0
    made.engine.accountant.history = []
    refused(lambda: made.engine.get_epsilon(1e-5), "ledgers have 1 steps, the accountant has 0")


def test_attach_step_hook_keeps_accountant() -> None:
    made = make()
    seen = []
    made.optimizer.attach_step_hook(lambda optimizer: seen.append(optimizer.max_grad_norm))
    made.step(*examples(count=3))
    assert made.engine.accountant.history == [(1.0, 0.1, 1)]
    assert seen == [0.5]


@pytest.mark.parametrize("given", [False, True])
def test_sampler_workers_draw_disjoint_batches(given, monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 2)
    drawn, steps = [], 2000  # a share lies within a fifth of its mean, by six standard deviations
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda *group, rank=rank: rank)
        data = TensorDataset(torch.arange(8.0)[:, None])
        # As a script has it that is to be repeatable: in each worker the same.
        generator = torch.Generator().manual_seed(7) if given else None
        plain = DataLoader(data, batch_size=1, generator=generator)
        loader = DPDataLoader.from_data_loader(plain, distributed=True)
        torch.manual_seed(0)
        batches = install_sampler(loader, steps)
        drawn.append(list(batches))
        assert len(drawn[-1]) == len(loader) == steps
        shares = torch.bincount(torch.tensor([*chain(*drawn[-1])]), minlength=8) / steps
        assert (shares > 0).sum() == 4
        assert float(shares[shares > 0].mean()) == pytest.approx(1 / 8, rel=0.2)
    first, second = ({place for batch in one for place in batch} for one in drawn)
    assert first.isdisjoint(second)
    # Equal seeds in both workers must not draw equal places.
    assert [len(batch) for batch in drawn[0]] != [len(batch) for batch in drawn[1]]


@pytest.mark.parametrize("distributed", [False, True])
def test_sampler_small_rate_uses_float64(distributed, monkeypatch) -> None:
    """Float32 numbers would be below a rate of 2^-24 (1 - 1/8) as often as below 2^-24."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *group: 1)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *group: 0)
    loader = DPDataLoader.from_data_loader(loader_of(torch.zeros(8, 1)), distributed=distributed)
    batches = install_sampler(loader, 1)
    seen = []

    def rand(*size, **more):
        seen.append(more["dtype"])
        return torch.full(size, 2**-24 * (1 - 1 / 16), dtype=more["dtype"])

    monkeypatch.setattr(torch, "rand", rand)
    batches.sample_rate = batches.accounted_rate = 2**-24 * (1 - 1 / 8)
    assert list(batches) == [[]]
    assert seen == [torch.float64]


class Places(nn.Module):
    """Takes each number of an example for an example of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs.reshape(-1, 1)).view(len(inputs), -1, 3).mean(dim=1)


def test_model_hooks_places_as_examples_rejected(mode) -> None:
    made = make(mode=mode, model=Places(), loader=untried_loader(*examples()))
    words = "see 24 examples in a batch of 4|4 losses for a batch of 24 examples"
    refused(lambda: made.step(*examples(count=4)), words, made)
