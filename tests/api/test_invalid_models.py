"""Models and targets that are refused whatever else there is beside what is wrong with them."""

import pytest
import torch
from torch import nn

from oso_dp import OsoError, train_private
from oso_dp.gradients import find_precision
from oso_dp.models.losses import cross_entropy
from oso_dp.training.task import TensorExamples
from oso_dp.training.user_model import UserModel, check_targets

CPU = torch.device("cpu")
X, Y = torch.zeros(9, 6), torch.zeros(9, dtype=torch.int64)


@pytest.mark.parametrize("share", [1e-6, 0.05, 0.5, 1.0])
@pytest.mark.parametrize(
    "kind",
    [
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
        *(nn.AlphaDropout, nn.FeatureAlphaDropout),
    ],
)
def test_whatever_drops_out_is_refused_by_name(kind: type[nn.Module], share: float) -> None:
    """A trial of ten examples does not see what seldom happens."""
    model = nn.Sequential(nn.Linear(6, 2), kind(share))
    with pytest.raises(OsoError, match="layer '1' is dropout"):
        UserModel(model)
    UserModel(nn.Sequential(nn.Linear(6, 2), kind(share).eval(), kind(0.0)))


class Counting(nn.Linear):
    """With three buffers, of which one counts."""

    def __init__(self, counts: int) -> None:
        super().__init__(6, 2)
        self.counts = f"buffer{counts}"
        for number in range(3):
            self.register_buffer(f"buffer{number}", torch.zeros(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        getattr(self, self.counts)[1] += 1
        return super().forward(inputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, on torch.jit
@pytest.mark.parametrize("within", [False, True])
def test_what_torch_jit_made_is_refused_by_name(within: bool) -> None:
    made = torch.jit.script(nn.Linear(6, 2))
    with pytest.raises(OsoError, match=r"is a torch\.jit module, which cannot be inspected"):
        UserModel(nn.Sequential(made) if within else made)


@pytest.mark.parametrize("counts", range(3))
def test_one_buffer_that_changes_among_others_that_do_not(counts: int) -> None:
    own, examples = UserModel(Counting(counts)), TensorExamples(X, Y)
    with pytest.raises(OsoError, match=f"model: its forward pass changes buffer 'buffer{counts}'"):
        own.code(cross_entropy, examples, find_precision("float32", CPU), CPU)


@pytest.mark.parametrize("wrong", [2, 40, -1])
def test_a_target_that_is_left_out_does_not_hide_another(wrong: int) -> None:
    """The loss takes -100 and leaves it out; what it does not take ends a training half-way."""
    loss = nn.CrossEntropyLoss(reduction="none")
    own, targets = UserModel(nn.Linear(6, 2)), torch.tensor([0, 1, -100, 1, 0, -100, 1, 0, 1])
    code = own.code(loss, TensorExamples(X, targets), find_precision("float32", CPU), CPU)
    check_targets(code, own.weights(CPU), TensorExamples(X, targets))
    targets[-1] = wrong
    with pytest.raises(OsoError, match=f"targets contain {wrong};"):
        check_targets(code, own.weights(CPU), TensorExamples(X, targets))


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
def test_a_model_that_gives_no_tensor_is_one_line(train, data, targets: str) -> None:
    inputs, classes = data
    shares = nn.functional.one_hot(classes).float()
    given = inputs, classes if targets == "whole" else shares
    with pytest.raises(OsoError, match="model: returns dict; must return one tensor") as error:
        train(model=Named(), loss=named_loss, data=given)
    assert "\n" not in str(error.value)


class Words(nn.Module):
    """Words that come as decimal numbers, as the study has them."""

    def __init__(self, last: int | None) -> None:
        super().__init__()
        self.last, self.vectors, self.layer = last, nn.Embedding(40, 4), nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        words = inputs.long() if self.last is None else inputs.long().clamp(0, self.last)
        return self.layer(self.vectors(words).mean(dim=1))


def test_made_up_examples_that_a_model_does_not_take_are_one_line(train, data) -> None:
    """Normal numbers, some of them below zero: no places in a vocabulary of 40."""
    given = torch.randint(0, 40, data[0].shape).float(), data[1]
    with pytest.raises(OsoError, match="model, loss: fail on made-up examples: index") as error:
        train(model=Words(None), data=given)
    assert "\n" not in str(error.value)
    assert train(model=Words(39), data=given, epochs=0.1).status == "finished"


@pytest.mark.parametrize("part", ["real", "complex"])
def test_a_model_of_complex_numbers_is_refused(part: str) -> None:
    """Its real part alone would train."""
    layer = nn.Linear(6, 2)
    made = nn.Sequential(layer, nn.Linear(2, 2, dtype=torch.cfloat if part == "complex" else None))
    if part == "real":
        UserModel(made)
        return
    with pytest.raises(OsoError, match=r"model: parameter '1\.weight' is complex"):
        UserModel(made)


WORDS = torch.tensor([[3, 0, 2], [0, 9, 1], [5, 9, 0]])


@pytest.mark.parametrize(("place", "word"), [((2, 0), 10), ((0, 1), -1), ((1, 2), 400)])
def test_a_word_that_the_model_does_not_know_is_told_before_it_trains(place, word: int) -> None:
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


def test_what_each_place_may_hold_is_another_matter_and_no_example_is_made_up_to_refuse() -> None:
    own = UserModel(Columns())
    own.check_inputs(TensorExamples(torch.tensor([[3, 4], [1, 29]]), torch.tensor([0, 1])))
    with pytest.raises(OsoError, match="inputs are integers from 1 to 29"):
        own.check_inputs(TensorExamples(torch.tensor([[4, 4], [1, 29]]), torch.tensor([0, 1])))


class Adding(nn.Linear):
    """Keeps the sum of its inputs, which of zeros stays what it was."""

    def __init__(self) -> None:
        super().__init__(6, 2)
        self.register_buffer("total", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.total += inputs.detach().reshape(-1, 6).sum(dim=0)
        return super().forward(inputs)


def test_a_model_that_sums_its_inputs_is_refused(train) -> None:
    with pytest.raises(OsoError, match="model: its forward pass changes buffer 'total'"):
        train(model=Adding())
