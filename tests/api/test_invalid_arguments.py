"""What does not fit together: one line, before anything is trained."""

import copy
import dataclasses

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

from oso_dp import OsoError
from oso_dp.training.loop import Training

TAKE_STEP = Training.take_step
EARLIER: list = []  # one training for all tests that go on from it


def refuse_step(self) -> None:
    raise AssertionError("a step was taken")


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch):
    monkeypatch.setattr(Training, "take_step", refuse_step)


def refusal(call, **changed) -> str:
    with pytest.raises(OsoError) as error:
        call(**changed)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        (
            "online",
            {"threshold": 0.5},
            "threshold: method 'online' has no such option; it has learning_rate and constants; "
            "did you mean initial_threshold?",
        ),
        (
            "online",
            {"quantile": 0.5},
            "quantile: method 'online' has no such option; it has learning",
        ),
        ("auto_s", {"threshold": 0.5}, "threshold: method 'auto_s' has no such option"),
        (
            "auto_dog",
            {"learning_rate": 1},
            "method 'auto_dog' has no such option; it has constants",
        ),
        ("fixed_quantile", {"threshold": 0.5, "quantile": 0.5}, "threshold: method 'fixed_qua"),
    ],
)
def test_method_unknown_option_rejected(train, method, given, message) -> None:
    assert message in refusal(train, method=method, batch_size=5, **given)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(), "loss: reduction 'mean'"),
        (nn.functional.cross_entropy, "loss: returns [] for three examples"),
        (lambda outputs, targets: outputs.sum(0), "loss: returns [2] for three examples"),
        (lambda outputs: outputs, "loss: fails on three targets of shape [] (integers; convert"),
        (nn.CrossEntropyLoss, "loss: the class CrossEntropyLoss; must be an instance"),
        ("cross entropy", "loss: str; must be callable"),
        (
            lambda outputs, targets: outputs.detach().sum(dim=1),
            "model, loss: fail on made-up examples: element 0",
        ),
        (lambda outputs, targets: outputs.sum(dim=1) * torch.nan, "loss: NaN or infinite on"),
        (
            lambda outputs, targets: outputs.sum(dim=1) * outputs.mean(),
            "differs between a batch of 7",
        ),
        (
            # No gradient shows it; who asks for losses would sum the batch's least.
            lambda outputs, targets: (
                nn.functional.cross_entropy(outputs, targets, reduction="none")
                - nn.functional.cross_entropy(outputs, targets, reduction="none").detach().min()
            ),
            "loss: an example's loss differs between a batch of 7",
        ),
    ],
)
def test_loss_invalid_rejected(train, loss, message) -> None:
    assert message in refusal(train, loss=loss)


def spoilt(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 2))
    with torch.no_grad():
        model[0].weight[0, 0] = value
    return model


class Rooted(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.sqrt())


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs - inputs.mean(dim=0))


class Counting(nn.Linear):
    """Its state would leave with it, without noise."""

    def __init__(self) -> None:
        super().__init__(6, 2)
        self.register_buffer("total", torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.total += inputs.shape[0]
        return super().forward(inputs)


def test_loss_mixing_later_class_rejected(train, data) -> None:
    """Made-up targets of 0 and 1 alone would not show that the loss mixes examples by class 2."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        many = (targets == 2).sum().clamp(min=1)
        return nn.functional.cross_entropy(outputs, targets, reduction="none") / many

    message = refusal(train, model=nn.Linear(6, 3), loss=loss)
    assert "differs between a batch of 7" in message


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("a model", "model: str; must be a torch.nn.Module"),
        (nn.Tanh(), "model: has no parameter that requires a gradient"),
        (nn.Linear(6, 2).requires_grad_(False), "model: has no parameter that requires"),
        (nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2)), "layer '1' is a BatchNorm1d"),
        (
            nn.LazyLinear(2),
            "model: parameter 'weight' is not initialised (lazy); call the model once",
        ),
        (spoilt(torch.nan), "model: parameter '0.weight' contains NaN or infinity"),
        (Rooted(), "model: its output on a made-up example is NaN or infinite"),
        (Centred(), "model: its output for an example"),
        (Counting(), "model: its forward pass changes buffer 'total'"),
    ],
)
def test_model_invalid_rejected(train, model, message) -> None:
    assert message in refusal(train, model=model)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0}, "epsilon: 0; must be a number > 0"),
        ({"epsilon": 1e-9}, "epsilon: 1e-09; no noise multiplier from"),
        ({"delta": 1.0}, "delta: 1.0; must be a number > 0 and < 1"),
        ({"epochs": -1}, "epochs: -1; must be a number > 0"),
        ({"batch_size": 401}, "batch_size: 401; must be <= the number of examples, 400"),
        ({"batch_size": 2.5}, "batch_size: 2.5; must be an integer >= 1"),
        ({"microbatch_size": -4}, "microbatch_size: -4; must be an integer >= 1"),
        ({"evaluate_every": 0}, "evaluate_every: 0; must be an integer >= 1"),
        ({"learning_rate": 0}, "learning_rate: 0; must be a number > 0"),
        ({"momentum": 1.0}, "momentum: 1.0; must be a number >= 0 and < 1"),
        ({"accountant": "gdp"}, "accountant: 'gdp'; must be one of rdp, pld"),
        ({"precision": "float16"}, "precision: 'float16'; must be one of float32"),
        ({"device": "tpu9"}, "device: 'tpu9'; must be cpu or cuda"),
        ({"evaluate": 0.5}, "evaluate: float; must be callable"),
        ({"resume_from": "model.oso"}, "resume_from: str; must be a result of train_private"),
        ({"randomness": "seeded"}, "set a seed if and only if randomness='seeded'"),
        ({"seed": 1}, "set a seed if and only if randomness='seeded'"),
        ({"randomness": "seeded", "seed": True}, "seed: True; must be an integer"),
        ({"randomness": []}, "randomness: []; must be a string"),
        ({"method": ["online"]}, "method: ['online']; must be a string"),
        ({"device": 10**30}, "device: 1000000000000000000000000000000; must be cpu or cuda"),
        ({"randomness": "dice"}, "randomness: 'dice'; must be one of seeded, system"),
        ({"method": "onlin"}, "method: 'onlin'; must be one of"),
        ({"method": "no_dp"}, "method: 'no_dp'; must be one of adam_wosm, "),
        ({"method": "fixed_threshold"}, "threshold: not set; method 'fixed_threshold' needs it"),
        (
            {"method": "fixed_quantile"},
            "quantile: not set; method 'fixed_quantile' needs it",
        ),
        ({"method": "fixed_quantile", "quantile": 2}, "quantile: 2; must be a number > 0 and"),
        ({"treshold_rate": 1.0}, "train_private: unknown argument 'treshold_rate'; the method's"),
        ({"treshold_rate": 1.0}, "; did you mean threshold_rate?"),
        ({"batchsize": 3}, "; did you mean batch_size?"),
        ({"method": None, "epoch": 3}, "unknown argument 'epoch'; did you mean epochs?"),
        ({"method": None, "lr": 3}, "unknown argument 'lr'; did you mean learning_rate?"),
        ({"threshold_rate": -1.0}, "threshold_rate: -1.0; must be a number >= 0"),
        ({"schedule": "step"}, "schedule: 'step'; must be one of constant, linear, cosine"),
        (
            {"schedule": lambda step, steps: "x"},
            "schedule at step 1 of 16: 'x'; must be a number >=",
        ),
        ({"schedule": lambda step, steps: 3.5 - step}, "schedule at step 4 of 16: -0.5; must be a"),
        (
            {"schedule": lambda step, steps: 1 / (3 - step)},
            "schedule: fails at step 3 of 16: division",
        ),
        ({"evaluate": lambda model, data: 1.0}, "evaluate: must be a function of the model"),
        ({"callbacks": [lambda: None]}, "callbacks: must be a function of an Evaluation"),
        ({"averaging": 1.0}, "averaging: 1.0; must be a number >= 0 and < 1"),
        (
            {"method": None, "learning_rate": 1},
            "learning_rate: given without a method; set one, as method='on",
        ),
        (
            {"method": None, "threshold": 0.5},
            "threshold: given without a method; set one, as method='fixed_threshold'",
        ),
        (
            {"method": None, "quantile": 0.5},
            "quantile: given without a method; set one, as method='fixed_q",
        ),
        (
            {"method": None, "threshold_rate": 0.1},
            "threshold_rate: given without a method; set one, as",
        ),
    ],
)
def test_train_private_invalid_option_rejected(train, changed, message) -> None:
    assert message in refusal(train, **changed)


class TestAfter:
    """Going on from what was trained before."""

    @pytest.fixture
    def earlier(self, train, monkeypatch):
        if not EARLIER:
            monkeypatch.setattr(Training, "take_step", TAKE_STEP)
            EARLIER.append(train(epochs=0.25))
            monkeypatch.setattr(Training, "take_step", refuse_step)
        return EARLIER[0]

    def test_resume_from_spent_budget_rejected(self, train, earlier) -> None:
        message = refusal(train, resume_from=earlier)
        assert "epsilon: 3; 3 of it is spent, at delta 1e-05; nothing is left" in message

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (
                {"data": (torch.zeros(9, 6), torch.zeros(9).long()), "batch_size": 2},
                "data: 9 examples; must be 400, as in resume_from",
            ),
            (
                {"data": (np.zeros((800, 6)), np.zeros(800, dtype=int)), "batch_size": 100},
                "data: 800 examples; must be 400, as in resume_from",  # at the same rate
            ),
            ({"batch_size": 40}, "batch_size must be 50, as in resume_from"),
            ({"method": "auto_s"}, "method: 'auto_s'; must be 'online', as in resume_from"),
            ({"learning_rate": 0.2}, "learning_rate: 0.2; has no effect with resume_from"),
            ({"model": nn.Linear(6, 2)}, "model: Linear; must have the class and parameters of"),
            (
                {"model": nn.Sequential(nn.Linear(6, 2))},
                "model: Sequential; must have the class and parameters of",
            ),
            ({"averaging": 0.9}, "averaging: 0.9; must be 0, as in resume_from"),
            (
                {"randomness": "seeded", "seed": 1},
                "randomness: 'seeded'; must be 'system', as in resume_from",
            ),
        ],
    )
    def test_resume_from_other_training_rejected(self, train, earlier, changed, message) -> None:
        assert message in refusal(train, resume_from=earlier, epsilon=9.0, **changed)

    def test_resume_from_seeded_training_rejected(self, train, earlier) -> None:
        """Resumed with system noise, steps with seeded noise would pass for unrepeatable ones."""
        seeded = copy.copy(earlier)
        seeded.statement = dataclasses.replace(earlier.statement, randomness="seeded")
        message = refusal(train, resume_from=seeded, epsilon=9.0)
        assert "randomness: 'system'; must be 'seeded', as in resume_from" in message


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class Of(Dataset):
    def __init__(self, *examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int):
        return self.examples[index]


class Endless(Of):
    def __len__(self) -> int:
        return float("inf")


class Broken(Of):
    def __getitem__(self, index: int):
        raise KeyError("row")


X, Y = np.zeros((9, 6), dtype=np.float32), np.zeros(9, dtype=np.int64)


PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:8]), "data: 9 inputs and 8 targets"),
        ((X, Y, Y), "data: 3 elements; must be (inputs, targets)"),
        ((X[:0], Y[:0]), "data: has no inputs; must have"),
        ((np.full((9, 6), np.nan), Y), "data: inputs contain NaN or infinity"),
        ((X, np.full(9, np.inf)), "data: targets contain NaN or infinity"),
        ((X.astype(complex), Y), "data: inputs are complex;"),
        ((np.ma.masked_array(X, X == 0), Y), "data: inputs are a masked array; fill or drop"),
        (
            (scipy.sparse.csr_array((9, 6)), Y),
            "data: inputs are sparse; must be dense, as toarray()",
        ),
        ((torch.zeros(9, 6).to_sparse(), Y), "data: inputs are a sparse, nested"),
        (Endless(), "data: has no length (TypeError: 'float' object"),
        (([["a"] * 6] * 9, Y), "data: inputs of type list; must be numbers"),
        ((X, np.array(["no", "yes", "no"] * 3)), "data: targets of type <U3; must be numbers"),
        (Stream(), "data: IterableDataset; must be a map-style data set"),
        (Of(), "data: has no examples; must have"),
        (Subset(Subset(PAIRS, [3, 3, 4]), [0, 1]), "data: an example appears twice in a Subset"),
        (ConcatDataset([PAIRS, PAIRS]), "data: an example appears twice in a Subset or Concat"),
        (Of(X[0], X[0]), "data: example of type ndarray; must be a pair"),
        (Of({"x": X[0]}), "data: example of type dict; must be a pair"),
        (DataLoader(Of(X[0], X[0])), "data: example of type ndarray; must be a pair"),
        (
            {"x": X},
            "data: dict; must be (inputs, targets) or a map-style data set",
        ),
        (Broken(X, Y), "data: has no example at index 0 (KeyError: 'row')"),
        (
            (X, Y + 2),
            "data: targets contain 2; must be 0 to 1, for this model's 2 outputs",
        ),
        ((X, Y - 1), "data: targets contain -1; must be 0 to 1, for this model's 2 outputs"),
        ((X[:, :5], Y), "model: fails on three examples of shape [5]: "),
        ((X, (Y, Y)), "data: targets are a tuple; must be one array: stack the columns"),
        (
            (X.astype(np.uint8), Y),
            "model: fails on three examples of shape [6] (integers; convert with float())",
        ),
    ],
)
def test_data_invalid_rejected(train, data, message) -> None:
    assert message in refusal(train, data=data, batch_size=5)


@pytest.mark.parametrize(
    "scored_on", [(X, Y[:8]), (np.full((9, 6), np.nan), Y), Stream(), Of(), Of(X[0], X[0]), 42]
)
def test_validation_invalid_rejected(search, scored_on) -> None:
    assert refusal(search, validation=scored_on).startswith("validation: ")
