"""A forward pass that changes its model is refused, whatever it changes and however."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_forward_is_pure, check_independence
from oso_dp.models.losses import cross_entropy

WORDS = torch.zeros(0, 5, dtype=torch.int64)
NUMBERS = torch.zeros(0, 5)
LABELS = torch.zeros(0, dtype=torch.int64)


class Table(nn.Module):
    """Words to vectors, as `rows` has them; 20 of them, in a table of its own."""

    def __init__(self, rows, trained: bool = True) -> None:
        super().__init__()
        self.rows = rows
        self.table = nn.Parameter(torch.randn(20, 4), requires_grad=trained)
        self.head, self.calls = nn.Linear(4, 3), []
        self.plain, self.register = torch.randn(20, 4), nn.Linear(2, 2)
        self.register_buffer("still", torch.zeros(3))
        self.register_buffer("fixed", torch.randn(20, 4))

    def forward(self, words: Tensor) -> Tensor:
        words = words.long().clamp(0, 19)
        return self.head(self.rows(self, words).mean(dim=1))


def renormed(model: Table, words: Tensor, name: str = "table", at: float = 0.5) -> Tensor:
    return F.embedding(words, getattr(model, name), max_norm=at)


def by_data(model: Table, words: Tensor) -> Tensor:
    model.table.data[words.flatten()] *= 0.5
    return model.table[words]


def while_it_trains(model: Table, words: Tensor) -> Tensor:
    return by_data(model, words) if model.training else model.table[words]


def while_it_is_scored(model: Table, words: Tensor) -> Tensor:
    return model.table[words] if model.training else by_data(model, words)


def where_it_asks_for_gradients(model: Table, words: Tensor) -> Tensor:
    asks = model.table.requires_grad and torch.is_grad_enabled()
    return by_data(model, words) if asks else model.table[words]


def at_the_first_call(model: Table, words: Tensor) -> Tensor:
    if not hasattr(model, "called"):
        model.called = True
        return by_data(model, words)
    return model.table[words]


def where_a_row_is_long(model: Table, words: Tensor) -> Tensor:
    return renormed(model, words, at=900.0)


def has_long_rows(model: Table, words: Tensor) -> bool:
    return bool((model.table[words].norm(dim=-1) > 900).any())


def where_a_row_is_long_and_asks(model: Table, words: Tensor) -> Tensor:
    asks = where_it_asks_for_gradients
    return asks(model, words) if has_long_rows(model, words) else model.table[words]


def where_a_row_is_long_and_scored(model: Table, words: Tensor) -> Tensor:
    return while_it_is_scored(model, words) if has_long_rows(model, words) else model.table[words]


def where_a_row_is_short(model: Table, words: Tensor) -> Tensor:
    short = bool((model.table[words].norm(dim=-1) < 0.05).any())
    return by_data(model, words) if short else model.table[words]


def of_high_words(model: Table, words: Tensor) -> Tensor:
    return by_data(model, words.clamp(min=15)) if (words > 15).any() else model.table[words]


def by_a_new_parameter(model: Table, words: Tensor) -> Tensor:
    model.table = nn.Parameter(model.table.detach() * 0.9)
    return model.table[words]


IN_PLACE = [
    *(renormed, by_data, while_it_trains, while_it_is_scored),
    *(where_it_asks_for_gradients, at_the_first_call, where_a_row_is_long, where_a_row_is_short),
    *(where_a_row_is_long_and_asks, where_a_row_is_long_and_scored),
    *(of_high_words, by_a_new_parameter),
]


@pytest.mark.parametrize("inputs", [WORDS, NUMBERS], ids=["whole", "decimal"])
@pytest.mark.parametrize("rows", IN_PLACE)
def test_pure_forward_changed_parameter_rejected(rows, inputs: Tensor) -> None:
    model = Table(rows)
    with pytest.raises(OsoError, match=r"^model: its forward pass changes parameter 'table'"):
        check_forward_is_pure(model, inputs)


@pytest.mark.parametrize("rows", [renormed, by_data])
def test_pure_forward_nested_frozen_parameter_rejected(rows) -> None:
    model = nn.Sequential(nn.Sequential(nn.Identity(), Table(rows, trained=False)))
    with pytest.raises(OsoError, match=r"^module: its .* parameter '0\.1\.table'") as error:
        check_forward_is_pure(model, WORDS, argument="module")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("at", [0.5, 500.0])
def test_pure_forward_changed_buffer_rejected(at: float) -> None:
    with pytest.raises(OsoError, match="changes buffer 'fixed'"):
        check_forward_is_pure(Table(partial(renormed, name="fixed", at=at)), WORDS)


def appended(model: Table, words: Tensor) -> Tensor:
    model.calls.append(words.float().mean())
    return model.table[words]


def under_a_key(model: Table, words: Tensor) -> Tensor:
    model.__dict__.setdefault("calls_by", {})[int(words.sum())] = words
    return model.table[words]


def counting_some(model: Table, words: Tensor) -> Tensor:
    """Batches of one kind."""
    model.calls = (model.calls or 0) + int(words.float().mean() > 0.4)
    return model.table[words]


def counting_far(model: Table, words: Tensor) -> Tensor:
    model.calls = (model.calls or 0) + int(words.sum())
    return model.table[words]


def the_last(model: Table, words: Tensor) -> Tensor:
    model.calls = model.table[words].detach()
    return model.table[words]


def set_at_the_first(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        model.calls = float(words.float().mean())
    return model.table[words]


def unregistered(model: Table, words: Tensor) -> Tensor:
    """A list of layers is no part of the model that torch sees."""
    model.calls = model.calls or [nn.Linear(2, 2)]
    with torch.no_grad():
        model.calls[0].weight += words.float().mean()
    return model.table[words]


@pytest.mark.parametrize(
    "rows",
    [
        *(appended, counting_some, counting_far, the_last),
        *(set_at_the_first, unregistered),
    ],
)
def test_pure_forward_changed_attribute_rejected(rows) -> None:
    model = nn.Sequential(Table(rows))
    with pytest.raises(OsoError, match=r"changes attribute 'calls' of layer '0'"):
        check_forward_is_pure(model, WORDS)


def test_pure_forward_new_attribute_rejected() -> None:
    with pytest.raises(OsoError, match="changes attribute 'calls_by'"):
        check_forward_is_pure(Table(under_a_key), WORDS)


def hooked_to_the_first(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        first = words.float().mean()
        model.head.register_forward_hook(lambda layer, given, made: made + first)
    model.calls = None
    return model.table[words]


def hooked_by_default(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        first = words.float().mean()
        model.head.register_forward_hook(lambda layer, given, made, first=first: made + first)
    model.calls = None
    return model.table[words]


def added(more, layer, given, made):
    return made + more


def hooked_by_partial(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        model.head.register_forward_hook(partial(added, words.float().mean()))
    model.calls = None
    return model.table[words]


class Added:
    def __init__(self, more: Tensor) -> None:
        self.more = more

    def __call__(self, layer, given, made):
        return made + self.more


def hooked_by_object(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        model.head.register_forward_hook(Added(words.float().mean()))
    model.calls = None
    return model.table[words]


def hooked_by_method(model: Table, words: Tensor) -> Tensor:
    if model.calls == []:
        model.head.register_forward_hook(Added(words.float().mean()).__call__)
    model.calls = None
    return model.table[words]


def hooked_each_time(model: Table, words: Tensor) -> Tensor:
    model.head.register_forward_hook(lambda layer, given, made: made)
    return model.table[words]


@pytest.mark.parametrize(
    "rows",
    [
        *(hooked_to_the_first, hooked_by_default, hooked_by_partial, hooked_by_object),
        *(hooked_by_method, hooked_each_time),
    ],
)
def test_pure_forward_hook_of_examples_rejected(rows) -> None:
    with pytest.raises(OsoError, match="changes attribute '_forward_hooks' of layer 'head'"):
        check_forward_is_pure(Table(rows), WORDS)


def test_pure_forward_unregistered_table_rejected() -> None:
    with pytest.raises(OsoError, match="changes attribute 'plain'"):
        check_forward_is_pure(Table(partial(renormed, name="plain")), WORDS)


def out_of_place(model: Table, words: Tensor) -> Tensor:
    return F.normalize(model.table, dim=1)[words]


def with_a_mask_of_the_shape(model: Table, words: Tensor) -> Tensor:
    """A cache for each shape: nothing in it is of an example's values."""
    if not isinstance(model.calls, dict):
        model.calls = {}
    mask = model.calls.setdefault(words.shape, torch.ones(words.shape))
    return model.table[words] * mask[..., None]


def counting_calls(model: Table, words: Tensor) -> Tensor:
    model.calls = 1 if model.calls == [] else model.calls + 1
    return model.table[words]


def counting_before_it_fails(model: Table, words: Tensor) -> Tensor:
    counting_calls(model, words)
    return torch.zeros(3)[words.long()]


def with_a_hook(model: Table, words: Tensor) -> Tensor:
    """As transformers does where a model returns hidden states."""
    if model.calls == []:
        kind = "first"
        model.head.register_forward_hook(lambda layer, given, made: made if kind else None)
    model.calls = None
    return model.table[words]


@pytest.mark.parametrize(
    "rows",
    [
        *(out_of_place, with_a_mask_of_the_shape, counting_calls, counting_before_it_fails),
        with_a_hook,
    ],
)
def test_pure_forward_harmless_changes_accepted(rows) -> None:
    model = Table(rows)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    drawn = torch.get_rng_state()
    check_forward_is_pure(model, WORDS)
    check_forward_is_pure(model, NUMBERS)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert model.training


@pytest.mark.parametrize(
    "model",
    [
        nn.LSTM(5, 3, batch_first=True),
        nn.TransformerEncoderLayer(4, 2, batch_first=True),
        nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)),
        nn.Sequential(nn.BatchNorm1d(5).eval(), nn.Dropout(0.5), nn.ReLU(inplace=True)),
    ],
    ids=["recurrent", "attention", "weight_norm", "others"],
)
def test_pure_forward_torch_layers_accepted(model: nn.Module) -> None:
    shapes = {nn.LSTM: (2, 5), nn.TransformerEncoderLayer: (3, 4)}
    check_forward_is_pure(model, torch.zeros(0, *shapes.get(type(model), (5,))))


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(5), nn.InstanceNorm1d(5, track_running_stats=True)]
)
def test_pure_forward_running_statistics_rejected(layer: nn.Module) -> None:
    shape = (5,) if isinstance(layer, nn.BatchNorm1d) else (5, 4)
    with pytest.raises(OsoError, match=r"changes buffer '0\.running_mean'"):
        check_forward_is_pure(nn.Sequential(layer), torch.zeros(0, *shape))


def test_pure_forward_structured_inputs_checked() -> None:
    """A loss takes two inputs, and a model may take a dictionary."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centre = nn.Parameter(torch.zeros(3), requires_grad=False)

        def forward(self, one: dict[str, Tensor], other: Tensor) -> Tensor:
            self.centre += (one["x"] - other[:, None]).mean(dim=0)
            return self.centre

    with pytest.raises(OsoError, match=r"^loss: .* 'centre'"):
        check_forward_is_pure(Pair(), {"x": torch.zeros(0, 3)}, LABELS, argument="loss")


class OnlySubstitutes(nn.Module):
    """Changes what stands in a parameter's place, and never the parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        if not isinstance(self.layer.weight, nn.Parameter):
            self.layer.weight.data.mul_(0.999)
        return self.layer(inputs)


def test_check_independence_substituted_parameter_rejected() -> None:
    model = OnlySubstitutes()
    check_forward_is_pure(model, NUMBERS)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach().double()
    with pytest.raises(OsoError, match=r"changes parameter 'layer\.weight'"):
        check_independence(GradientEngine(model.double(), cross_entropy), flat, NUMBERS, LABELS)
