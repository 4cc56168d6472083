"""A saved model comes back whole, or is refused."""

import copy
import json
import os

import pytest
import torch
from torch import nn

import oso_dp
from oso_dp import OsoError, load_private
from oso_dp.api import model as model_module
from oso_dp.checkpoint import load_checkpoint, save_checkpoint
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.promise import EXAMPLE
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.loop import Training

TRAINED: list = []


@pytest.fixture
def saved(train, tmp_path):
    """A training, one for all tests, and its file."""
    if not TRAINED:
        TRAINED.append(train(evaluate=lambda model: 0.5, evaluate_every=10))
    path = tmp_path / "a model.oso"
    TRAINED[0].save(path)
    return TRAINED[0], path


def test_load_private_equals_saved_and_resumes(saved, train, model) -> None:
    made, path = saved
    back = load_private(path, model)
    assert back.statement == made.statement
    assert back.history == made.history
    assert back.ledger == made.ledger
    assert (back.epsilon, back.delta, back.status) == (made.epsilon, made.delta, "finished")
    for one, other in zip(back.model.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(one, other)
    more = train(resume_from=back, epsilon=4.0)
    assert more.ledger.step_count == 32
    assert more.epsilon <= 4.0
    assert more.history.learning_rate[16] == pytest.approx(made.history.learning_rate[-1], rel=0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own modules
def test_load_private_compiled_model_unwrapped(train, model, tmp_path) -> None:
    made = train(model=torch.compile(model), epochs=1)
    assert type(made.model) is type(model)
    assert oso_dp.check(torch.compile(model), torch.zeros(1, 6)) == oso_dp.check(
        model, torch.zeros(1, 6)
    )
    made.save(tmp_path / "compiled")
    for one in (model, torch.compile(model)):
        assert load_private(tmp_path / "compiled", one).statement == made.statement


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_load_private_other_accountant_rejected(train, model, tmp_path, accountant) -> None:
    """Another accountant gives another epsilon, which a saved statement may not claim."""
    made = train(accountant=accountant, batch_size=400, epochs=3)
    path = tmp_path / "model"
    made.save(path)
    back = load_private(path, model)
    assert (back.statement, back.epsilon) == (made.statement, made.epsilon)
    other = {"rdp": "pld", "pld": "rdp"}[accountant]
    changed(
        path, statement=json.dumps(json.loads(made.statement.to_json()) | {"accountant": other})
    )
    with pytest.raises(OsoError, match="its statement does not follow from its ledgers"):
        load_private(path, model)


def test_resume_from_diverged_rejected(train, model, tmp_path) -> None:
    made = train(learning_rate=1e38, initial_threshold=1e6)
    made.save(tmp_path / "gone")
    back = load_private(tmp_path / "gone", model)
    assert (back.status, back.epsilon) == ("diverged", made.epsilon)
    with pytest.raises(OsoError, match="resume_from: a training that diverged"):
        train(resume_from=back, epsilon=9.0)


def test_resume_from_wrong_shape_rejected(saved, train, model) -> None:
    path = saved[1]
    content = load_checkpoint(path, model_module._FORMAT)
    content["state"]["parameters"] = content["state"]["parameters"][:, 1:]
    changed(path, state=content["state"])
    with pytest.raises(OsoError, match="resume_from: its parameters are not those of this model"):
        train(resume_from=load_private(path, model), epsilon=9.0)


def changed(path, **parts) -> None:
    """The file with other content and its right checksum, as whoever knows the format writes it."""
    content = load_checkpoint(path, model_module._FORMAT)
    assert content is not None
    content.pop("fingerprint")
    save_checkpoint(path, model_module._FORMAT, {**content, **parts})


def test_load_private_edited_ledger_rejected(saved, model) -> None:
    made, path = saved
    edited = json.loads(made.ledger.to_json())
    edited["steps"][0]["count"] -= 1
    paid = json.loads(made.privacy_cost.to_json())
    changed(path, privacy_cost=json.dumps({**paid, "ledger": json.dumps(edited)}))
    with pytest.raises(OsoError, match="its statement does not follow from its ledgers"):
        load_private(path, model)


@pytest.mark.parametrize(
    "claim",
    [
        {"epsilon": 0.5},
        {"epsilon": 99.0},
        {"delta": 0.5},
        {"steps": 15},
        {"unused_steps": 3},
        {"sampling_rate": 0.001},
        {"releases": [["x", 99.0]]},
        {"tuning": "included. The best of 9 trainings, all of which are released and paid for."},
        {"validation_examples": 300},
        {"unit": "user"},
        {"unit": "row"},
    ],
)
def test_load_private_edited_statement_rejected(saved, model, claim) -> None:
    made, path = saved
    claimed = json.loads(made.statement.to_json()) | claim
    changed(path, statement=json.dumps(claimed))
    with pytest.raises(OsoError, match="its statement does not follow from its ledgers"):
        load_private(path, model)


def test_load_private_old_statement_accepted(saved, model) -> None:
    made, path = saved
    stated = json.loads(made.statement.to_json())
    del stated["local"]
    old = stated | {"unit": EXAMPLE.text, "neighbouring": EXAMPLE.neighbouring}
    changed(path, statement=json.dumps(old))
    assert load_private(path, model).statement == made.statement
    changed(path, statement=json.dumps(old | {"neighbouring": "data sets that differ by anything"}))
    with pytest.raises(OsoError, match="not a model saved by oso"):
        load_private(path, model)


def ledger_of(noise: float, count: int) -> str:
    return Ledger(PoissonSampling(0.1), [((SumQuery("x", noise),), count)]).to_json()


@pytest.mark.parametrize(
    "paid",
    [
        {"other_trainings": [ledger_of(1.0, 3)]},
        {
            "stopping": {
                "mean_runs": 4,
                "distribution": "geometric",
                "candidate": ledger_of(90.0, 1),
            }
        },
        {"stopping": {"mean_runs": 4, "distribution": "none", "candidate": ledger_of(0.1, 99)}},
        {"ledger": "{}"},
    ],
)
def test_load_private_edited_cost_rejected(saved, model, paid) -> None:
    made, path = saved
    changed(path, privacy_cost=json.dumps({**json.loads(made.privacy_cost.to_json()), **paid}))
    with pytest.raises(OsoError):
        load_private(path, model)


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-9], lambda b: b"", lambda b: b[:200] + b"x" + b[201:]]
)
def test_load_private_damaged_file_rejected(saved, model, spoil) -> None:
    path = saved[1]
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(
        OsoError, match=r"a model\.oso: not a model saved by oso, or damaged"
    ) as error:
        load_private(path, model)
    assert "\n" not in str(error.value)


def test_load_private_wrong_arguments_rejected(saved, tmp_path) -> None:
    other = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))
    with pytest.raises(OsoError, match="its parameters are not those of this Sequential"):
        load_private(saved[1], other)
    with pytest.raises(OsoError, match=r"not a file$"):
        load_private(tmp_path, other)
    with pytest.raises(OsoError, match="no such file"):
        load_private(tmp_path / "b", other)


class Tuned(nn.Module):
    """A frozen layer before one that trains, buffers that are in its state and one that is not."""

    def __init__(self, scale: float = 1.0, seed: int = 0, table=None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.features = nn.Linear(6, 6).requires_grad_(False)
            self.head = nn.Linear(6, 2)
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.bfloat16))
        self.register_buffer("table", torch.ones(2, 3) if table is None else table)
        self.register_buffer("made_anew", torch.rand(3), persistent=False)

    def forward(self, x):
        return self.head(self.features(x)) * self.scale.float()


def test_load_private_changed_frozen_values_rejected(train, tmp_path) -> None:
    """Another feature extractor under the same weights is another model, which nobody trained."""
    path = tmp_path / "model"
    made = train(model=Tuned(), batch_size=400)
    made.save(path)
    back = load_private(path, Tuned())
    inputs = torch.ones(2, 6)
    assert torch.equal(back.model(inputs), made.model(inputs))
    with pytest.raises(OsoError, match=r"'features\.bias' of this Tuned, which is not trained"):
        load_private(path, Tuned(seed=1))
    with pytest.raises(OsoError, match="'scale' of this Tuned, which is not trained, differs"):
        load_private(path, Tuned(scale=2.0))
    ones = torch.ones(2, 3)
    for table in (ones.T, ones.flatten(), ones.view(torch.int32)):  # of the same bytes
        with pytest.raises(OsoError, match="'table' of this Tuned, which is not trained, differs"):
            load_private(path, Tuned(table=table))


class Bare(nn.Module):
    """Trains what `Tuned` trains, and lacks some of what it keeps."""

    def __init__(self, *kept: str, more: bool = False) -> None:
        super().__init__()
        whole = Tuned()
        self.head = whole.head
        for name in kept:
            if name == "features":
                self.features = whole.features
            else:
                self.register_buffer(name, getattr(whole, name))
        if more:
            self.register_buffer("further", torch.ones(2))


@pytest.mark.parametrize(
    ("kept", "more", "named"),
    [
        (("features", "scale"), False, "table"),
        (("scale", "table"), False, "features.bias"),
        (("features", "scale", "table"), True, "further"),
    ],
)
def test_load_private_other_frozen_parts_rejected(train, tmp_path, kept, more, named) -> None:
    """A model that lacks a frozen part or has another one is not the trained model."""
    train(model=Tuned(), batch_size=400, epochs=1).save(tmp_path / "model")
    with pytest.raises(OsoError, match=f"'{named}' of this Bare, which is not trained"):
        load_private(tmp_path / "model", Bare(*kept, more=more))


def test_save_overwrites_only_same_training(saved, train, tmp_path) -> None:
    made, path = saved
    made.save(path)
    train(resume_from=made, epsilon=4.0).save(path)  # it went on
    later = path.read_bytes()
    for other in (made, train()):  # of the one that went on, an earlier state is another
        with pytest.raises(OsoError, match=r"a model\.oso: exists and is another training's model"):
            other.save(path)
    assert path.read_bytes() == later
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for place in (notes, tmp_path):
        with pytest.raises(OsoError, match="exists and is not a model that oso saved; name"):
            made.save(place)
    assert notes.read_text() == "mine"
    path.write_bytes(later[:-1])
    with pytest.raises(OsoError, match="exists and is not a model that oso saved"):
        made.save(path)


def test_save_over_endless_file_rejected(saved, tmp_path) -> None:
    """Reading a device or a pipe to its end would fill the memory or wait forever."""
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(OsoError, match="exists and is not a model that oso saved; name"):
            saved[0].save(place)


def test_save_similar_run_id_rejected(train, tmp_path) -> None:
    whole = {"randomness": "seeded", "batch_size": 400, "epochs": 1}
    path = tmp_path / "model"
    train(seed=1, **whole).save(path)
    with pytest.raises(OsoError, match="exists and is another training's model"):
        train(seed=12, **whole).save(path)


def test_save_and_load_invalid_path_rejected(saved, model) -> None:
    for path in (None, 5, "", "a\0b"):
        with pytest.raises(OsoError, match=r"path: .*; must be a file name"):
            saved[0].save(path)
        with pytest.raises(OsoError, match=r"path: .*; must be a file name"):
            load_private(path, model)


METHODS = {
    "online": {"averaging": 0.9},
    "fixed_threshold": {"threshold": 1.0, "momentum": 0.5},
    "dp_adam": {"threshold": 1.0},
    "auto_dog": {},
    "fixed_quantile_per_layer": {"quantile": 0.5, "averaging": 0.5},
}


def flat(state: dict) -> dict:
    """By name, with what the method remembers; a state has no number that is not one but NaN."""
    parts = {name: value for name, value in state.items() if name != "buffers"}
    parts |= {f"memory of {name}": value for name, value in state["buffers"].items()}
    return {
        name: (value.dtype, value.shape, value.nan_to_num(nan=-123.0).tolist())
        if torch.is_tensor(value)
        else value
        for name, value in parts.items()
    }


@pytest.fixture(params=METHODS)
def made(request, train):
    given = {"method": request.param, "batch_size": 400, "epochs": 3, **METHODS[request.param]}
    return train(**given), given


def test_load_private_state_equals_saved(made, model, tmp_path) -> None:
    ended, _ = made
    assert any(value.any() for value in ended.state["buffers"].values())
    ended.save(tmp_path / "model")
    assert flat(load_private(tmp_path / "model", model).state) == flat(ended.state)


def test_resume_from_restores_whole_state(made, train, monkeypatch) -> None:
    """A resumed training restores the whole state except for the noise multiplier."""
    ended, given = made
    begun, go_on = [], Training.resume

    def noting(self, state, ledgers) -> None:
        begun.append((copy.deepcopy(vars(state)), state.noise_multiplier))
        go_on(self, state, ledgers)

    monkeypatch.setattr(Training, "resume", noting)
    more = train(resume_from=ended, epsilon=9.0, **given)
    ((state, noise),) = begun
    assert flat({**state, "noise_multiplier": 0}) == flat({**ended.state, "noise_multiplier": 0})
    assert more.state["noise_multiplier"] == noise != ended.state["noise_multiplier"]
    assert more.state["step"] == 2 * ended.state["step"] == 6
