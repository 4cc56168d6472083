"""What does not fit together: one line, before anything is trained."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from oso_dp import OsoError
from oso_dp.training.loop import Training

TAKE_STEP = Training.take_step


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
        ("online", {"threshold": 0.5}, "threshold: method 'online' takes none; it takes learning"),
        ("online", {"quantile": 0.5}, "quantile: method 'online' takes none; it takes learning"),
        ("auto_s", {"threshold": 0.5}, "threshold: method 'auto_s' takes none"),
        ("auto_dog", {"learning_rate": 1}, "method 'auto_dog' takes none; it takes its constants"),
        ("fixed_quantile", {"threshold": 0.5, "quantile": 0.5}, "threshold: method 'fixed_qua"),
    ],
)
def test_what_a_method_sets_by_itself(train, method, given, message) -> None:
    assert message in refusal(train, method=method, batch_size=5, **given)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(), "loss: reduction 'mean'"),
        (nn.CrossEntropyLoss(reduction="sum"), "loss: reduction 'sum'"),
        (nn.functional.cross_entropy, "loss: gave [] for three examples"),
        (lambda outputs, targets: outputs, "loss: gave [3, 2] for three examples"),
        (lambda outputs, targets: 1.0, "loss: gave float for three examples"),
        (lambda outputs: outputs, "model: fails on three examples"),
        ("cross entropy", "loss: str; must be callable"),
        (
            lambda outputs, targets: outputs.detach().sum(dim=1),
            "model, loss: fail on made-up examples: element 0",
        ),
        (lambda outputs, targets: outputs.sum(dim=1) * torch.nan, "loss: is not finite (NaN or"),
        (
            lambda outputs, targets: outputs.sum(dim=1) * outputs.mean(),
            "is another in a batch of 7 than alone",
        ),
        (
            # No gradient shows it; who asks for losses would sum the batch's least.
            lambda outputs, targets: (
                nn.functional.cross_entropy(outputs, targets, reduction="none")
                - nn.functional.cross_entropy(outputs, targets, reduction="none").detach().min()
            ),
            "loss: an example's loss is another in a batch of 7 than alone",
        ),
    ],
)
def test_loss(train, loss, message) -> None:
    assert message in refusal(train, loss=loss)


def frozen_in_part() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 2))
    model[0].bias.requires_grad_(False)
    return model


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


class Dropping(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(inputs), 0.5, training=True)


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


def test_a_loss_that_mixes_by_a_later_class(train, data) -> None:
    """Made-up targets of 0 and 1 alone would not show it."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        many = (targets == 2).sum().clamp(min=1)
        return nn.functional.cross_entropy(outputs, targets, reduction="none") / many

    message = refusal(train, model=nn.Linear(6, 3), loss=loss)
    assert "is another in a batch of 7 than alone" in message


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("a model", "model: str; must be a torch.nn.Module"),
        (nn.Tanh(), "model: has no parameter that requires a gradient"),
        (nn.Linear(6, 2).requires_grad_(False), "model: has no parameter that requires"),
        (frozen_in_part(), "model: layer '0' is partially frozen"),
        (nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2)), "layer '1' is a BatchNorm1d"),
        (nn.Sequential(nn.Linear(6, 2), nn.Dropout()), "layer '1' is dropout"),
        (
            nn.LazyLinear(2),
            "model: parameter 'weight' is not initialised (lazy); call the model once",
        ),
        (spoilt(torch.nan), "model: parameter '0.weight' contains NaN or infinity"),
        (spoilt(torch.inf), "model: parameter '0.weight' contains NaN or infinity"),
        (Rooted(), "model: its output is not finite (NaN or infinite) on a made-up example"),
        (Dropping(), "model: its output for an example is another each time; what is random"),
        (Centred(), "model: its output for an example"),
        (Counting(), "model: its forward pass changes buffer 'total'"),
    ],
)
def test_model(train, model, message) -> None:
    assert message in refusal(train, model=model)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0}, "epsilon 0: must be a number above 0"),
        ({"epsilon": float("inf")}, "epsilon inf: must be a number above 0"),
        ({"epsilon": 1e-9}, "epsilon 1e-09: no noise multiplier between"),
        ({"delta": 1.0}, "delta 1.0: must be a number above 0 and below 1"),
        ({"epochs": -1}, "epochs -1: must be a number above 0"),
        ({"batch_size": 401}, "batch_size 401: must be at most the 400 examples"),
        ({"batch_size": 0}, "batch_size 0: must be a whole number above 0"),
        ({"batch_size": 2.5}, "batch_size 2.5: must be a whole number above 0"),
        ({"microbatch_size": -4}, "piece -4: must be a whole number above 0"),
        ({"evaluate_every": 0}, "evaluate_every 0: must be a whole number above 0"),
        ({"learning_rate": 0}, "learning_rate 0: must be a number above 0"),
        ({"momentum": 1.0}, "momentum 1.0: must be a number at least 0 and below 1"),
        ({"accountant": "gdp"}, "accountant 'gdp': not known; allowed are rdp, pld"),
        ({"precision": "float16"}, "precision 'float16': allowed are float32"),
        ({"device": "tpu9"}, "device 'tpu9': not known; allowed are cpu, cuda"),
        ({"device": "mps"}, "device 'mps': is not for this; allowed are cpu, cuda"),
        ({"device": "meta"}, "device 'meta': is not for this; allowed are cpu, cuda"),
        ({"evaluate": 0.5}, "evaluate: must be callable, not float"),
        ({"after": "model.oso"}, "after: must be what train_private gave, not str"),
        ({"randomness": "seeded"}, "seed: goes with randomness='seeded'"),
        ({"seed": 1}, "seed: goes with randomness='seeded'"),
        ({"randomness": "seeded", "seed": True}, "seed True: must be a whole number"),
        ({"randomness": "seeded", "seed": "1"}, "seed '1': must be a whole number"),
        ({"randomness": []}, "randomness []: must be a name, a text"),
        ({"method": ["online"]}, "method ['online']: must be a name, a text"),
        ({"method": ""}, "method '': not known; allowed are"),
        ({"device": 10**30}, "device 1000000000000000000000000000000: not known"),
        ({"randomness": "dice"}, "randomness 'dice': not known; allowed are seeded, system"),
        ({"method": "onlin"}, "method 'onlin': not known; allowed are"),
        ({"method": "no_dp"}, "method 'no_dp': protects nobody"),
        ({"method": "fixed_threshold"}, "method 'fixed_threshold': needs a threshold"),
        (
            {"method": "fixed_quantile"},
            "fixed_quantile: a run must begin with a quantile",
        ),
        ({"method": "fixed_quantile", "quantile": 2}, "quantile 2: must be a number above 0 and"),
        ({"treshold_rate": 1.0}, "train_private: unknown argument 'treshold_rate'; the method's"),
        ({"treshold_rate": 1.0}, "; did you mean threshold_rate?"),
        ({"batchsize": 3}, "; did you mean batch_size?"),
        ({"method": None, "epoch": 3}, "unknown argument 'epoch'; did you mean epochs?"),
        ({"method": None, "lr": 3}, "unknown argument 'lr'; did you mean learning_rate?"),
        ({"method": None, "colour": 3}, "train_private: unknown argument 'colour'"),
        ({"threshold_rate": -1.0}, "threshold_rate -1.0: must be a number at least 0"),
        ({"schedule": "cosine"}, "schedule 'cosine': allowed are constant, linear"),
        ({"averaging": 1.0}, "averaging 1.0: must be a number at least 0 and below 1"),
        ({"averaging": -0.1}, "averaging -0.1: must be a number at least 0 and below 1"),
        ({"method": None, "learning_rate": 1}, "learning_rate: say of which method, as method='on"),
        (
            {"method": None, "threshold": 0.5},
            "threshold: say of which method, as method='adam_wosm'; without one, train_private tak",
        ),
        ({"method": None, "quantile": 0.5}, "quantile: say of which method, as method='fixed_q"),
        ({"method": None, "optimizer": "adam"}, "unknown argument 'optimizer'"),
        ({"method": None, "threshold_rate": 0.1}, "threshold_rate: say of which method, as"),
    ],
)
def test_numbers_and_names(train, changed, message) -> None:
    assert message in refusal(train, **changed)


class TestAfter:
    """Going on from what was trained before."""

    @pytest.fixture
    def earlier(self, train, monkeypatch):
        monkeypatch.setattr(Training, "take_step", TAKE_STEP)
        made = train(epochs=0.25)
        monkeypatch.setattr(Training, "take_step", refuse_step)
        return made

    def test_a_spent_budget(self, train, earlier) -> None:
        message = refusal(train, after=earlier)
        assert "epsilon 3: 3 of it is spent, at delta 1e-05; nothing is left for 16 more" in message

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (
                {"data": (torch.zeros(9, 6), torch.zeros(9).long()), "batch_size": 2},
                "after: was trained on 400 examples, these are 9",
            ),
            (
                {"data": (np.zeros((800, 6)), np.zeros(800, dtype=int)), "batch_size": 100},
                "after: was trained on 400 examples, these are 800",  # at the same rate
            ),
            ({"batch_size": 40}, "after: was trained with batch_size 50; the ledger has"),
            ({"method": "auto_s"}, "after: was trained by 'online', not by 'auto_s'"),
            ({"learning_rate": 0.2}, "after: its learning_rate goes on; learning_rate 0.2 would"),
            ({"model": nn.Linear(6, 2)}, "model: after goes on with the model that it has, a Seq"),
            (
                {"model": nn.Sequential(nn.Linear(6, 2))},
                "model: after goes on with the model that it has, a Sequential; this Sequential is",
            ),
            ({"averaging": 0.9}, "after: was trained without averaging, which must stay so"),
            (
                {"randomness": "seeded", "seed": 1},
                "after: was trained with randomness 'system', which must stay",
            ),
        ],
    )
    def test_another_training(self, train, earlier, changed, message) -> None:
        assert message in refusal(train, after=earlier, epsilon=9.0, **changed)

    def test_one_whose_noise_had_a_seed(self, train, earlier) -> None:
        """Its steps would pass for ones that nobody can repeat."""
        seeded = copy.copy(earlier)
        seeded.statement = dataclasses.replace(earlier.statement, randomness="seeded")
        message = refusal(train, after=seeded, epsilon=9.0)
        assert "after: was trained with randomness 'seeded', which must stay" in message

    def test_one_that_diverged(self, train, earlier) -> None:
        gone = copy.copy(earlier)
        gone.status = "diverged"
        assert "after: this training diverged; begin anew" in refusal(train, after=gone)
