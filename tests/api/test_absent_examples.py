"""Examples of a data set that are not like the others: they count as absent, and nothing tells."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from oso_dp.api.datasets import DatasetExamples
from oso_dp.api.scoring import NoisyScorer
from oso_dp.api.train import train_private
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.rng_sources import Seeded

CPU = torch.device("cpu")
LARGE = 16_777_217  # float32 has no such number


def pairs_of(data):
    return [(one, int(other)) for one, other in zip(*data, strict=True)]


class Buffered:
    """As readers of files do it: one buffer, filled again for each example."""

    def __init__(self, rows, buffer) -> None:
        self.rows, self.buffer = rows, buffer

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int):
        self.buffer[:] = self.rows[index]
        return self.buffer, self.buffer[:1]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_dataset_examples_reused_buffer_copied(kind: str, dtype: str) -> None:
    """Examples are copied, since a reused buffer would give the last example in every row."""
    rows = torch.arange(12).reshape(4, 3).to(getattr(torch, dtype))
    buffer = torch.zeros(3, dtype=rows.dtype) if kind == "torch" else np.zeros(3, dtype)
    inputs, targets, absent = DatasetExamples(
        Buffered(rows if kind == "torch" else rows.numpy(), buffer), CPU
    ).batch(torch.tensor([[0, 2, 1], [3, 0, 3]]))
    wanted = rows[torch.tensor([[0, 2, 1], [3, 0, 3]])]
    assert torch.equal(inputs, wanted.float() if wanted.is_floating_point() else wanted.long())
    assert torch.equal(targets, inputs[..., :1])
    assert not absent.any()


ODD_TARGETS = [float("nan"), 0.5, "cat", 1j, 1e300]


@pytest.mark.parametrize(
    ("odd", "at"), [*((odd, 7) for odd in ODD_TARGETS), (float("nan"), 1), (None, 399)], ids=str
)
def test_train_private_invalid_target_counts_absent(odd, at: int, train, data) -> None:
    """An invalid target makes an example absent, bit for bit as a NaN input does."""
    pairs = pairs_of(data)
    pairs[at] = pairs[at][0], odd
    made = train(data=pairs, batch_size=400, epochs=1, randomness="seeded", seed=1)
    pairs[at] = pairs[at][0] * torch.nan, 1
    other = train(data=pairs, batch_size=400, epochs=1, randomness="seeded", seed=1)
    assert made.status == "finished"
    for one, two in zip(made.model.parameters(), other.model.parameters(), strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, two)


def test_train_private_infinite_input_finishes(train, data) -> None:
    """An infinite input is absent, since binary cross entropy raises an error for NaN."""

    def loss(outputs, targets):
        chance = outputs.softmax(dim=1)[:, 1]
        return F.binary_cross_entropy(chance, targets.float(), reduction="none")

    pairs = pairs_of(data)
    pairs[3] = pairs[3][0] * torch.inf, 1
    assert train(data=pairs, loss=loss, batch_size=400, epochs=2).status == "finished"


@pytest.mark.parametrize("odd", [0.5, LARGE - 1.0, float("nan"), 2.0**60])
def test_dataset_examples_type_follows_first_example(odd: float) -> None:
    """A float example does not convert the large integers of other examples to float32."""
    ids = [(torch.tensor([LARGE + place, place]), place % 2) for place in range(5)]
    plain, _, _ = DatasetExamples(ids, CPU).batch(torch.arange(5)[None])
    ids[3] = torch.tensor([odd, odd], dtype=torch.float64), 1
    inputs, _, absent = DatasetExamples(ids, CPU).batch(torch.arange(5)[None])
    assert inputs.dtype == torch.int64
    others = [0, 1, 2, 4]
    assert torch.equal(inputs[0, others], plain[0, others])
    assert absent[0].tolist() == [False, False, False, odd != LARGE - 1, False]
    assert inputs[0, 3].tolist() == ([LARGE - 1] * 2 if odd == LARGE - 1 else [0, 0])


@pytest.mark.parametrize("runs", [1, 3])
def test_gradient_engine_absent_adds_nothing(runs: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(runs)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        inputs, targets = torch.randn(runs, 6, 4), torch.randint(0, 3, (runs, 6))
        absent = torch.rand(runs, 6) < 0.4
        weights = torch.rand(runs, 2, 6)
    absent[0, 2] = True
    code = GradientEngine(model, cross_entropy)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()]).repeat(runs, 1)
    made, whole = code(flat, inputs, targets, absent), code(flat, inputs, targets)
    assert torch.equal(made.norms().isinf(), absent)
    assert torch.equal(made.norms()[~absent], whole.norms()[~absent])
    for name, norms in made.layer_norms().items():
        assert torch.equal(norms.isinf(), absent)
        assert torch.equal(norms[~absent], whole.layer_norms()[name][~absent])
    without = whole.weighted_sums(weights * ~absent[:, None])
    torch.testing.assert_close(made.weighted_sums(weights), without)


def test_noisy_scorer_absent_counts_wrong() -> None:
    pairs = [(torch.zeros(2), place) for place in range(6)]
    pairs[4] = torch.zeros(2) * torch.nan, 4
    noted: list[int] = []

    def right(outputs, targets) -> float:
        noted.append(int(targets))
        return 1.0

    scores = NoisyScorer(DatasetExamples(pairs, CPU), right, 1e-3, Seeded(), CPU, 4)

    class Made:
        run_id, model = "a", nn.Linear(2, 2)

    assert scores(Made()) == pytest.approx(5 / 6, abs=8 * scores.std + 1e-6)
    assert noted == [0, 1, 2, 3, 5]


class Refusing:
    """Validation data that nobody may look at."""

    def __len__(self) -> int:
        return 5

    def empty(self):
        return torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)

    def batch(self, indices):
        raise AssertionError("somebody looked")


def test_noisy_scorer_check_reads_no_example() -> None:
    """The check uses made-up examples, since its outcome is released without noise."""
    noted: list[int] = []

    def right(outputs, targets) -> float:
        noted.append(int(targets))
        return 1.0

    NoisyScorer(Refusing(), right, 1e-3, Seeded(), CPU, None).check(nn.Linear(2, 2))
    assert noted == [0, 1, noted[2], 0]  # made up


@pytest.mark.parametrize("odd", ["input", "target"])
def test_train_private_unequal_shapes_rejected(odd: str, train, data) -> None:
    """Unequal shapes raise an error, since most examples would otherwise count as absent."""
    pairs = [(one, torch.tensor([other])) for one, other in pairs_of(data)]
    pairs[5] = (pairs[5][0][:5], pairs[5][1]) if odd == "input" else (pairs[5][0], torch.zeros(2))

    def loss(outputs, targets):
        return F.cross_entropy(outputs, targets[:, 0], reduction="none")

    with pytest.raises(OsoError, match="data: examples of different shapes"):
        train(data=pairs, loss=loss, batch_size=400, epochs=1)


@pytest.mark.parametrize(
    ("size", "odd"),
    [(3, float("nan")), (100, None), (250, "word")],
)
def test_train_private_mostly_unusable_data_rejected(size: int, odd) -> None:
    def training(unusable: int):
        pairs = [(torch.ones(2), 0.5)] * size
        for index in range(1, unusable + 1):  # the first one says the types
            pairs[index] = torch.ones(2), odd
        return train_private(
            nn.Linear(2, 1),
            lambda outputs, targets: (outputs.squeeze(1) - targets) ** 2,
            pairs,
            epsilon=3,
            delta=1e-5,
            epochs=1,
            progress=False,
        )

    half = min(size, 100) // 2
    with pytest.raises(
        OsoError, match=r"^data: more than half of the first \d+ examples contain NaN"
    ):
        training(half + 1)
    assert training(half).epsilon <= 3


def test_check_usable_ignores_raising_examples() -> None:
    class Broken(list):
        def __getitem__(self, index):
            if index > 0:
                raise ValueError("no such file")
            return super().__getitem__(index)

    DatasetExamples(Broken([(torch.ones(2), 0.5)] * 4), CPU).check_usable()
