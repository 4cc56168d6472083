"""Models, arguments and data of other kinds: taken as what they are, or refused."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp import OsoError, train_private
from oso_dp.api.datasets import DatasetExamples, make_examples, widen
from oso_dp.api.scoring import NoisyScorer, is_correct
from oso_dp.gradients import find_precision
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.training.task import TensorExamples
from oso_dp.training.user_model import UserModel, check_targets

CPU = torch.device("cpu")


X, Y = torch.zeros(9, 6), torch.zeros(9, dtype=torch.int64)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, on its old weight_norm
def test_user_model_computed_attribute_rejected() -> None:
    made = nn.Sequential(nn.Tanh(), nn.utils.weight_norm(nn.Linear(6, 2)))
    with pytest.raises(OsoError, match=r"attribute 'weight' of layer '1' is computed from param"):
        UserModel(made)
    assert UserModel(nn.utils.parametrizations.weight_norm(nn.Linear(6, 2))).shapes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, on torch.jit
@pytest.mark.parametrize("within", [False, True])
def test_user_model_torch_jit_rejected(within: bool) -> None:
    made = torch.jit.script(nn.Linear(6, 2))
    with pytest.raises(OsoError, match=r"is a torch\.jit module, which cannot be inspected"):
        UserModel(nn.Sequential(made) if within else made)


@pytest.mark.parametrize("wrong", [2, 40, -1])
def test_check_targets_class_beside_ignored_rejected(wrong: int) -> None:
    """An invalid class is found among targets of -100, which the loss ignores."""
    loss = nn.CrossEntropyLoss(reduction="none")
    own, targets = UserModel(nn.Linear(6, 2)), torch.tensor([0, 1, -100, 1, 0, -100, 1, 0, 1])
    engine = own.make_engine(loss, TensorExamples(X, targets), find_precision("float32", CPU), CPU)
    check_targets(engine, own.weights(CPU), TensorExamples(X, targets))
    targets[-1] = wrong
    with pytest.raises(OsoError, match=f"targets contain {wrong};"):
        check_targets(engine, own.weights(CPU), TensorExamples(X, targets))


@pytest.mark.parametrize("wrong", [1.5, -0.1])
def test_check_targets_float_outside_range_rejected(wrong: float) -> None:
    loss, own = (
        nn.BCELoss(reduction="none"),
        UserModel(nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())),
    )
    targets = torch.rand(9, 1)
    targets[3] = torch.nan  # left out
    engine = own.make_engine(loss, TensorExamples(X, targets), find_precision("float32", CPU), CPU)
    check_targets(engine, own.weights(CPU), TensorExamples(X, targets))
    targets[-1] = wrong
    with pytest.raises(OsoError, match=f"targets contain {wrong:g}, which the loss does not take"):
        check_targets(engine, own.weights(CPU), TensorExamples(X, targets))


class Named(nn.Module):
    """Gives its logits under a name, as models of other libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.layer(inputs)}


def named_loss(outputs, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs["logits"], targets)


@pytest.mark.parametrize("targets", ["whole", "shares"])
def test_train_private_dictionary_outputs_accepted(train, data, targets: str) -> None:
    inputs, classes = data
    shares = nn.functional.one_hot(classes).float()
    given = inputs, classes if targets == "whole" else shares
    assert train(model=Named(), loss=named_loss, data=given, epochs=0.1).status == "finished"


def test_train_private_string_output_rejected(train, data) -> None:
    class Silent(Named):
        def forward(self, inputs: torch.Tensor) -> str:
            super().forward(inputs)
            return "nothing"

    with pytest.raises(OsoError, match="model: returns str; must return a tensor, or a") as error:
        train(model=Silent(), loss=lambda outputs, targets: targets, data=data)
    assert "\n" not in str(error.value)


class Words(nn.Module):
    """Words that come as decimal numbers, as the study has them."""

    def __init__(self, last: int | None) -> None:
        super().__init__()
        self.last, self.vectors, self.layer = last, nn.Embedding(40, 4), nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        words = inputs.long() if self.last is None else inputs.long().clamp(0, self.last)
        return self.layer(self.vectors(words).mean(dim=1))


def test_train_private_failing_model_rejected(train, data) -> None:
    """Made-up inputs are normal numbers, and negative ones are no indices of the vocabulary."""
    given = torch.randint(0, 40, data[0].shape).float(), data[1]
    with pytest.raises(OsoError, match="model, loss: fail on made-up examples: index") as error:
        train(model=Words(None), data=given)
    assert "\n" not in str(error.value)
    assert train(model=Words(39), data=given, epochs=0.1).status == "finished"


@pytest.mark.parametrize("part", ["real", "complex"])
def test_user_model_complex_parameter_rejected(part: str) -> None:
    """Only the real part of a complex parameter would be trained."""
    layer = nn.Linear(6, 2)
    made = nn.Sequential(layer, nn.Linear(2, 2, dtype=torch.cfloat if part == "complex" else None))
    if part == "real":
        UserModel(made)
        return
    with pytest.raises(OsoError, match=r"model: parameter '1\.weight' is complex"):
        UserModel(made)


WORDS = torch.tensor([[3, 0, 2], [0, 9, 1], [5, 9, 0]])


@pytest.mark.parametrize(("place", "word"), [((2, 0), 10), ((0, 1), -1), ((1, 2), 400)])
def test_check_inputs_unknown_word_rejected(place, word: int) -> None:
    own = UserModel(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)))
    words, targets = WORDS.clone(), torch.tensor([0, 1, 0])
    own.check_inputs(TensorExamples(words, targets))
    words[place] = word
    ends = f"from {min(word, 0)} to {max(word, 9)}"
    with pytest.raises(OsoError, match=f"data: inputs are integers {ends}, and the model"):
        own.check_inputs(TensorExamples(words, targets))
    with pytest.raises(OsoError, match=f"data: inputs are integers {ends}, and the model"):
        train_private(own.model, cross_entropy, (words, targets), epsilon=3, delta=1e-5)


class Columns(nn.Module):
    """A table of words for each column; no example may have the last word of both."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(4, 2), nn.Embedding(30, 2)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if ((inputs[:, 0] == 3) & (inputs[:, 1] == 29)).any():
            raise ValueError("both")
        return self.tables[0](inputs[:, 0]) + self.tables[1](inputs[:, 1])


def test_check_inputs_words_per_column_accepted() -> None:
    own = UserModel(Columns())
    own.check_inputs(TensorExamples(torch.tensor([[3, 4], [1, 29]]), torch.tensor([0, 1])))
    with pytest.raises(OsoError, match="inputs are integers from 1 to 29"):
        own.check_inputs(TensorExamples(torch.tensor([[4, 4], [1, 29]]), torch.tensor([0, 1])))


class Adding(nn.Linear):
    """Keeps the sum of its inputs, which of zeros stays what it was."""

    def __init__(self, kind: str) -> None:
        super().__init__(6, 2)
        if kind == "buffer":
            self.register_buffer("total", torch.zeros(6))
        else:
            self.total = torch.zeros(6)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.total += inputs.detach().reshape(-1, 6).sum(dim=0)
        return super().forward(inputs)


@pytest.mark.parametrize("kind", ["buffer", "attribute"])
def test_train_private_stateful_forward_rejected(train, kind: str) -> None:
    with pytest.raises(OsoError, match=f"model: its forward pass changes {kind} 'total'"):
        train(model=Adding(kind))


SEEDED = {"randomness": "seeded", "seed": 1}


def weights(made) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in made.model.parameters()])


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": np.float32(3), "batch_size": np.int64(400), "epochs": np.int32(2)},
        {"epsilon": torch.tensor(3.0), "batch_size": torch.tensor(400), "seed": np.int64(1)},
        {"learning_rate": np.float32(1), "threshold_rate": torch.tensor(2.0)},
    ],
)
def test_train_private_array_scalars_match_numbers(train, given) -> None:
    usual = {**SEEDED, "batch_size": 400, "threshold_rate": 2.0}
    first, other = train(**usual), train(**{**usual, **given})
    assert torch.equal(weights(first), weights(other))
    assert type(other.statement.budget) is float
    assert type(other.statement.epsilon) is float


def test_auto_dog_schedule_rejected(train) -> None:
    with pytest.raises(
        OsoError, match="schedule: 'linear'; must be 'constant' for method 'auto_dog'"
    ):
        train(method="auto_dog", schedule="linear")


def test_train_private_table_matches_tensors(train, data) -> None:
    """A table's read-only numbers give no warning of torch, which would fail the test."""
    inputs, targets = data
    table = pd.DataFrame(inputs.numpy()), pd.Series(targets.numpy())
    first, other = (train(data=form, batch_size=400, **SEEDED) for form in (data, table))
    assert torch.equal(weights(first), weights(other))


def test_train_private_empty_batch_counts_step(train, data) -> None:
    """An error on an empty batch would reveal that the batch is empty."""

    class Pairs:
        def __len__(self) -> int:
            return len(data[0])

        def __getitem__(self, index: int):
            return data[0][index], data[1][index]

    fetched = DatasetExamples(Pairs(), torch.device("cpu")).batch(torch.zeros(1, 0).long())
    inputs, targets, absent = fetched
    assert absent is None
    assert (inputs.shape, targets.shape) == ((1, 0, 6), (1, 0))
    made = train(data=Pairs(), batch_size=1, epochs=0.05, randomness="seeded", seed=3)
    assert made.ledger.step_count == 20  # of which a third has nobody


@pytest.mark.parametrize("form", ["arrays", "pairs"])
@pytest.mark.parametrize("keys", [("ids", "mask"), ()])
def test_make_examples_structured_inputs_stay_aligned(keys, form: str) -> None:
    """The words and the mask of an example stay together in every batch."""
    parts = torch.arange(12).view(6, 2), (torch.arange(6)[:, None] & torch.tensor([1, 2, 4])) > 0
    targets = torch.tensor([0, 1, 2, 0, 1, 2])

    def structured(values):
        return dict(zip(keys, values, strict=True)) if keys else tuple(values)

    pairs = [(structured(row), y) for *row, y in zip(*parts, targets, strict=True)]
    examples = make_examples((structured(parts), targets) if form == "arrays" else pairs, CPU)
    indices = torch.tensor([[4, 0, 4], [1, 5, 2]])
    inputs, found, _ = examples.batch(indices)
    for key, right in zip(keys or range(2), parts, strict=True):
        assert inputs[key].dtype == right.dtype
        assert torch.equal(inputs[key], right[indices])
    assert torch.equal(found, targets[indices])


ROW = torch.randn(4)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets) ** 2


def logits(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def chances(outputs: Tensor, targets: Tensor) -> Tensor:
    """Takes no decimal target below 0, as made-up ones are."""
    return F.binary_cross_entropy(outputs[:, 0].sigmoid(), targets.float(), reduction="none")


def by_parity(outputs: Tensor, targets: Tensor) -> Tensor:
    """Keys that float32 does not have are other ones there."""
    return outputs[:, 0] * (targets % 2)


class WordBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(12, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.table(inputs).flatten(1))


class Keys(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward((inputs % 7).float())


@pytest.mark.parametrize(
    ("model", "loss", "first", "inputs", "targets"),
    [
        (nn.Linear(4, 2), squared, (ROW, 1), torch.float32, torch.float32),
        (nn.Linear(4, 2), squared, (ROW, True), torch.float32, torch.float32),
        (nn.Linear(4, 2), chances, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), cross_entropy, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), by_parity, (ROW, 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), cross_entropy, (ROW.long(), 1), torch.float32, torch.int64),
        (nn.Linear(4, 2), squared, (ROW.long(), 1), torch.float32, torch.float32),
        (WordBag(), cross_entropy, (ROW.long(), 1), torch.int64, torch.int64),
        (WordBag(), squared, (ROW.long(), 1), torch.int64, torch.float32),
        (Keys(4, 2), squared, (ROW.long(), 1), torch.int64, torch.float32),
    ],
)
def test_widen_type_follows_model_and_loss(model, loss, first, inputs, targets) -> None:
    examples = DatasetExamples([first, first], CPU)
    found = widen(examples, UserModel(model).losses_by(loss))
    assert [part.dtype for part in found.empty()] == [inputs, targets]
    batch = found.batch(torch.tensor([[0, 1]]))
    assert [part.dtype for part in batch[:2]] == [inputs, targets]
    assert not batch[2].any()


class Several(nn.Module):
    """A model of several inputs: words, numbers that it multiplies by, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, words: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
        return self.head(self.table(words).mean(1) * scale[:, None]) + mask[:, :1]


@pytest.mark.parametrize("scale", [2, 0.5])
def test_widen_several_inputs_typed_separately(scale) -> None:
    """Each input gets the type that the model takes, whatever type its first example has."""
    rows = [
        ({"words": ROW.long(), "scale": torch.tensor(one), "mask": ROW > 0}, 1)
        for one in (scale, 0.25)
    ]
    found = widen(DatasetExamples(rows, CPU), UserModel(Several()).losses_by(cross_entropy))
    inputs, targets = found.empty()
    assert [one.dtype for one in inputs.values()] == [torch.int64, torch.float32, torch.bool]
    assert targets.dtype == torch.int64
    inputs, _, absent = found.batch(torch.tensor([[0, 1]]))
    assert inputs["scale"].tolist() == [[scale, 0.25]]
    assert not absent.any()


def test_widen_types_follow_first_example() -> None:
    found = [
        widen(DatasetExamples([(ROW, 1), other], CPU), UserModel(nn.Linear(4, 2)).losses_by(loss))
        for other in [(ROW, 0.5), (ROW, 2), (ROW, "cat")]
        for loss in (squared, cross_entropy)
    ]
    assert [one.empty()[1].dtype for one in found] == [torch.float32, torch.int64] * 3


def test_train_private_integer_first_target_widened(train, data) -> None:
    inputs, targets = data[0], data[0].sum(dim=1).round(decimals=1)
    targets[0] = 1.0
    usual = {"loss": squared, "batch_size": 400, "epochs": 1, "randomness": "seeded", "seed": 1}
    made = [
        train(data=[(inputs[0], first), *zip(inputs[1:], targets[1:], strict=True)], **usual)
        for first in (1.0, 1)
    ]
    for one, other in zip(*(one.model.parameters() for one in made), strict=True):
        assert torch.equal(one, other)
    assert "Types: inputs float32 [6], targets float32 []; an example" in str(made[1].statement)
    assert made[0].statement.types == made[1].statement.types


@pytest.mark.parametrize(
    ("right", "dtype"),
    [
        (lambda outputs, target: float((outputs[0, 0] - target).abs() < 1), torch.float32),
        (lambda outputs, target: float(outputs.argmax() == target), torch.float32),
        (is_correct, torch.int64),
    ],
)
def test_noisy_scorer_types_follow_metric(right, dtype: torch.dtype) -> None:
    pairs = [(ROW, 1), (ROW, 0.5)]
    scores = NoisyScorer(DatasetExamples(pairs, CPU), right, 1.0, Seeded(), CPU, None)
    scores.check(nn.Linear(4, 2))
    assert scores.validation.empty()[1].dtype == dtype


@pytest.mark.parametrize(
    "layer",
    [
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 2)),
        nn.utils.parametrizations.orthogonal(nn.Linear(6, 2)),
    ],
)
def test_train_private_parametrized_layer_trained(train, layer: nn.Module) -> None:
    before = nn.utils.parameters_to_vector(layer.parameters())
    trained = train(model=nn.Sequential(layer))
    assert trained.status == "finished"
    assert not torch.equal(nn.utils.parameters_to_vector(trained.model.parameters()), before)


class Recurrent(nn.Module):
    """Sequences of three numbers each, as the layer gets them."""

    def __init__(self, pack) -> None:
        super().__init__()
        self.pack, self.layer, self.last = pack, nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.layer(self.pack(inputs.unflatten(1, (2, 3))))[1][0].flatten(0, -2))


def packed(inputs: Tensor) -> nn.utils.rnn.PackedSequence:
    return nn.utils.rnn.pack_padded_sequence(
        inputs, torch.full((len(inputs),), 2), batch_first=True
    )


@pytest.mark.parametrize(
    ("pack", "given"), [(packed, "PackedSequence"), (lambda inputs: inputs[:, 0], r"shape \(")]
)
def test_train_private_invalid_lstm_input_rejected(train, pack, given: str) -> None:
    line = f"model: a LSTM is called with {given}.*; must be a batch of padded sequences"
    with pytest.raises(OsoError, match=line):
        train(model=Recurrent(pack))
