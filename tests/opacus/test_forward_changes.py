"""A forward pass that changes a parameter writes its batch into the released weights."""

from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, loader_of, make
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from oso_dp.errors import OsoError

NOT_TRIED = "ignore:module. not checked whether"
pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]
WORDS, TARGETS = torch.randint(0, 9, (40, 5)), torch.randint(0, 3, (40,))
Write = Callable[[Tensor, Tensor], None]


def limited_rows(words: Tensor, table: Tensor) -> None:
    nn.functional.embedding(words, table, max_norm=0.5)


def limited_bags(words: Tensor, table: Tensor) -> None:
    nn.functional.embedding_bag(words, table, max_norm=0.5)


def normalised_rows(words: Tensor, table: Tensor) -> None:
    with torch.no_grad():
        table[words] = nn.functional.normalize(table[words], dim=-1)


def added(words: Tensor, table: Tensor) -> None:
    with torch.no_grad():
        table.add_(words.double().mean())


def through_data(words: Tensor, table: Tensor) -> None:
    table.data[words] *= 0.9


class Words(nn.Module):
    """A table, and a forward pass that writes to it."""

    def __init__(self, write: Write, trained: bool) -> None:
        super().__init__()
        self.write = write
        self.table = nn.Parameter(torch.randn(20, 4), requires_grad=trained)
        self.head = nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        self.write(words, self.table)
        return self.head(nn.functional.embedding(words, self.table).mean(1))


def nested(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.Sequential(layer)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    "write", [limited_rows, limited_bags, normalised_rows, added, through_data]
)
def test_a_forward_that_changes_parameters_is_refused(write, depth, trained, mode) -> None:
    model = nested(Words(write, trained)) if depth else Words(write, trained)
    table = next(p for p in model.parameters() if len(p) == 20).detach().clone()
    with pytest.raises(OsoError, match=r"module: .* changes parameter '[\w.]*table'") as raised:
        make(mode=mode, model=model, loader=loader_of(WORDS, TARGETS))
    assert "\n" not in str(raised.value)
    assert torch.equal(table, next(p for p in model.parameters() if len(p) == 20))


def untried() -> DataLoader:
    data = TensorDataset(WORDS, TARGETS)
    return DataLoader(data, batch_size=8, collate_fn=lambda rows: default_collate(rows))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("write", [limited_rows, limited_bags, normalised_rows, added])
def test_an_untried_forward_that_changes_parameters_is_refused(write, trained, mode) -> None:
    """In its first call, by how often each parameter was written to."""
    made = make(mode=mode, model=nested(Words(write, trained)), loader=untried())
    with pytest.raises(OsoError, match=r"module: .* changes parameter '1\.0\.0\.table'"):
        made.model(WORDS[:4])
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(
    "inside",
    [nested, lambda layer: nn.ModuleList([nested(layer)]), lambda layer: nested(nested(layer))],
)
def test_a_nested_max_norm_is_refused(inside, kind, mode) -> None:
    """By its layer's name, also where nothing is tried."""
    model = nn.Sequential(inside(kind(20, 4, max_norm=1.0)), nn.Linear(4, 3))
    with pytest.raises(OsoError, match=r"module: layer '0\.[\d.]+' \(.*\): max_norm changes"):
        make(mode=mode, model=model, loader=untried())
