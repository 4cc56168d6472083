"""Training a user's model on the user's data."""

import math
import os
import signal
from uuid import UUID

import numpy as np
import pytest
import torch
from tests.api.conftest import flat
from tests.privacy.helpers import seeded_normals
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from oso_dp import OsoError
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import (
    format_spent_epsilon,
    format_used_noise_multiplier,
)
from oso_dp.accounting.search import Search
from oso_dp.gradients import GradientEngine
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.rng_sources import Seeded, get_source
from oso_dp.privacy.sampling import PoissonSampling

SEEDED = {"randomness": "seeded", "seed": 1}


def accuracy(model: nn.Module, data) -> float:
    inputs, targets = data
    return float((model(inputs).argmax(dim=1) == targets).float().mean())


def test_train_private_learns_within_budget(train, model, data) -> None:
    before = flat(model).clone()
    made = train(epsilon=8.0, epochs=10)
    assert torch.equal(flat(model), before)
    assert all(p.requires_grad for p in (*model.parameters(), *made.model.parameters()))
    assert accuracy(made.model, data) > 0.85 > accuracy(model, data) + 0.1
    assert made.status == "finished"
    assert made.ledger.step_count == 80 == len(made.history.step)
    assert 7.99 < made.epsilon <= 8.0
    assert made.epsilon == compute_epsilon([made.ledger], 1e-5)


@pytest.mark.parametrize(
    ("method", "accountant"),
    [("online", "rdp"), ("auto_s", "rdp"), ("fixed_quantile", "rdp"), ("online", "pld")],
)
def test_train_private_noise_matches_budget(train, method, accountant) -> None:
    extra = {"quantile": 0.5} if method == "fixed_quantile" else {}
    whole = {"epsilon": 1.0, "epochs": 4, "batch_size": 400}  # all examples, priced in no time
    made = train(method=method, accountant=accountant, **whole, **extra)
    by_rdp, nu = (
        Search(PoissonSampling(1.0), 4, 1).noise_multiplier(1.0, 1e-5, name)
        for name in ("rdp", accountant)
    )
    (together, steps), *others = made.ledger.releases()
    assert (steps, others) == (4, [])
    assert together == pytest.approx(nu, rel=1e-6)
    assert (nu < 0.95 * by_rdp) == (accountant == "pld")
    assert made.epsilon == pytest.approx(1.0, rel=2e-3)
    assert made.epsilon <= 1.0


@pytest.mark.parametrize(
    ("method", "given", "begins"),
    [
        ("fixed_threshold_preset", {"threshold": 0.7}, {"threshold": 0.7, "learning_rate": 1.0}),
        ("adam_wosm", {"threshold": 0.7, "learning_rate": 0.2}, {"learning_rate": 0.2}),
        ("online", {"learning_rate": 0.3, "initial_threshold": 0.6}, {"threshold": 0.6}),
    ],
)
def test_train_private_starts_at_given_values(train, method, given, begins) -> None:
    """The training starts at the given values, also if they are constants of the method."""
    made = train(method=method, batch_size=400, **given)
    for name, value in begins.items():
        assert getattr(made.history, name)[0] == pytest.approx(value, rel=1e-2)


def test_train_private_only_seeded_repeats(train, monkeypatch) -> None:
    """Without a seed, two trainings with the same run id have different noise."""
    monkeypatch.setattr("oso_dp.api.train.uuid4", lambda: UUID(int=1))
    assert not torch.equal(flat(train().model), flat(train().model))
    seeded, again = flat(train(**SEEDED).model), flat(train(**SEEDED).model)
    assert torch.equal(seeded, again)
    assert not torch.equal(seeded, flat(train(randomness="seeded", seed=2).model))


def test_train_private_matches_manual_steps(train, model, data) -> None:
    """FixedThreshold's steps: the clipped gradients of each batch, noised, with momentum."""
    made = train(method="fixed_threshold", threshold=0.7, learning_rate=0.3, **SEEDED)
    nu = made.ledger.releases()[0][0]
    mechanism = Mechanism(["private 1"], 400, 50)
    theta, velocity = flat(model).clone(), 0.0
    copy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    for step in range(1, made.ledger.step_count + 1):
        indices, present = mechanism.random_numbers.batches(["private 1"], step)
        total = torch.zeros_like(theta, dtype=torch.float64)
        nn.utils.vector_to_parameters(theta, copy.parameters())
        for place in indices[0][present[0]].tolist():
            copy.zero_grad()
            nn.functional.cross_entropy(copy(data[0][place][None]), data[1][place][None]).backward()
            gradient = torch.cat([p.grad.flatten() for p in copy.parameters()])
            total += gradient * min(1.0, 0.7 / float(gradient.norm()))
        purpose = f"noise/clipped_gradient/{nu:.7g}"
        noise = seeded_normals(["private 1"], purpose, step, theta.shape)[0]
        velocity = 0.9 * velocity + (total + 0.7 * nu * torch.from_numpy(noise)) / 50
        theta = (theta - 0.3 * velocity).float()
    torch.testing.assert_close(flat(made.model), theta, rtol=1e-4, atol=1e-5)


class Pairs(Dataset):
    """As users write them: a tensor and a number."""

    def __init__(self, data) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, index: int):
        return self.data[0][index], int(self.data[1][index])


def test_train_private_data_forms_match(train, data) -> None:
    forms = [data, [*data], TensorDataset(*data), Pairs(data)]
    forms += [tuple(part.numpy() for part in data), (data[0].double(), data[1].to(torch.int32))]
    first, *others = (flat(train(data=form, **SEEDED).model) for form in forms)
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]), reduction="none"),
        lambda outputs, y: nn.functional.cross_entropy(
            outputs, y, weight=torch.tensor([1.0, 2.0]), reduction="none"
        ),
    ],
)
def test_train_private_class_weights_accepted(train, loss) -> None:
    made = train(loss=loss, batch_size=400)
    assert (made.status, made.ledger.step_count) == ("finished", 2)


def test_microbatch_size_changes_memory_only(train, monkeypatch) -> None:
    longest, call = [], GradientEngine.__call__

    def spy(self, flat, inputs, *others):
        longest.append(inputs.shape[1])
        return call(self, flat, inputs, *others)

    monkeypatch.setattr(GradientEngine, "__call__", spy)
    made = train(microbatch_size=7, **SEEDED)
    assert 0 < max(longest) <= 7
    torch.testing.assert_close(flat(made.model), flat(train(**SEEDED).model), rtol=1e-4, atol=1e-5)


def test_train_private_frozen_layers_unchanged(train, model, data) -> None:
    model[0].requires_grad_(False)
    made = train(epsilon=20.0, **SEEDED)
    assert torch.equal(made.model[0].weight, model[0].weight)
    assert not torch.equal(made.model[2].weight, model[2].weight)
    assert [p.requires_grad for p in made.model.parameters()] == [False, False, True, True]


def test_history_matches_online_updates(train) -> None:
    made = train(epochs=5, threshold_rate=0.1, evaluate=lambda m: 0.25, evaluate_every=15)
    history = made.history.arrays()
    assert history["step"].tolist() == list(range(1, 41))
    for name, rate in (("threshold", 0.1), ("learning_rate", 2.5e-3)):
        moves = np.abs(np.diff(np.log(history[name])))
        assert moves[0] == pytest.approx(0, abs=1e-6)  # from the second step on
        assert moves[1:] == pytest.approx(rate, rel=1e-3)
    assert history["score_step"].tolist() == [15, 30, 40]
    table = made.history.to_pandas()
    assert table["score"].count() == 3
    assert len(table) == 40


def test_train_private_ctrl_c_then_resumes(train, capsys) -> None:
    def interrupt(model: nn.Module) -> float:
        signal.raise_signal(signal.SIGINT)
        return 0.0

    before = signal.getsignal(signal.SIGINT)
    whole = train(**SEEDED)
    begun = train(evaluate=interrupt, evaluate_every=5, progress=True, **SEEDED)
    assert begun.status == "interrupted"
    assert begun.ledger.step_count == 5
    so_far = compute_epsilon([begun.ledger], 1e-5)
    assert so_far < 2.5
    said = capsys.readouterr().err
    cost = f"these steps cost epsilon {format_spent_epsilon(so_far)} of 3, at"
    assert f"stopped at step 5 of 16: {cost}" in said
    assert f"the statement's {format_spent_epsilon(begun.epsilon)} counts all planned steps" in said
    assert signal.getsignal(signal.SIGINT) is before
    # The rest, at the same noise but for the last digits, is what it would have been.
    rest = train(resume_from=begun, epochs=11 / 8, **SEEDED)
    assert rest.status == "finished"
    assert rest.ledger.step_count == 16
    assert rest.epsilon == compute_epsilon([rest.ledger], 1e-5)
    assert 2.99 < rest.epsilon <= 3
    assert "The training was interrupted and resumed" in str(rest.statement)
    assert rest.history.step == list(range(1, 17))
    nu = [nu for nu, _ in rest.ledger.releases()]
    assert nu == pytest.approx([nu[0]] * len(nu), rel=1e-3)
    assert rest.history.learning_rate[:6] == whole.history.learning_rate[:6]


def test_resume_from_accountant_meets_budget(train) -> None:
    """Another accountant would add more noise than the budget requires, or less."""
    accountant = "pld"
    whole = {"batch_size": 400, "accountant": accountant}  # all examples, priced in no time
    more = train(resume_from=train(epsilon=1.0, epochs=2, **whole), epsilon=2.0, epochs=3, **whole)
    assert more.ledger.step_count == 5
    assert 1.99 < compute_epsilon([more.ledger], 1e-5, accountant) <= 2.0


def test_resume_from_keeps_starting_values(train) -> None:
    """resume_from accepts the same starting values again and rejects other ones."""
    begins = {"method": "fixed_quantile", "quantile": 0.6, "learning_rate": 0.2}
    first = train(batch_size=400, **begins)
    more = train(resume_from=first, batch_size=400, epsilon=4.0, **begins)
    assert more.history.learning_rate == pytest.approx([0.2] * 4)
    for name in ("quantile", "learning_rate"):
        with pytest.raises(OsoError, match=f"{name}: 0.3; has no effect with resume_from"):
            train(resume_from=first, batch_size=400, epsilon=4.0, **{**begins, name: 0.3})


def test_resume_from_branches_draw_own_noise(train) -> None:
    first = train(**SEEDED)
    branches = [
        train(resume_from=first, epsilon=9.0, randomness="seeded", seed=seed) for seed in (1, 2, 1)
    ]
    one, other, again = (flat(branch.model) for branch in branches)
    assert not torch.equal(one, other)
    assert torch.equal(one, again)
    assert len({branch.run_id for branch in branches} | {first.run_id}) == 3


def test_evaluate_error_names_released_steps(train) -> None:
    def evaluate(model: nn.Module) -> float:
        raise KeyError("mistake")

    with pytest.raises(KeyError) as error:
        train(evaluate=evaluate, evaluate_every=7)
    assert error.value.__notes__[0].startswith("7 steps were released before this error;")


@pytest.mark.parametrize("gave", [None, torch.zeros(2)])
def test_evaluate_nonnumber_rejected(train, gave) -> None:
    with pytest.raises(OsoError, match=r"evaluate: returned .*; must be a number") as error:
        train(evaluate=lambda model: gave, evaluate_every=1, batch_size=400)
    assert error.value.__notes__[0].startswith("1 steps were released before this error;")


@pytest.mark.parametrize("gave", [math.nan, math.inf])
def test_evaluate_nonfinite_accepted(train, gave: float) -> None:
    """The evaluation is the user's number; only the weights decide whether a training diverged."""
    made = train(evaluate=lambda model: gave, evaluate_every=1, batch_size=400)
    assert made.status == "finished"
    assert made.history.score == pytest.approx([gave, gave], nan_ok=True)


def test_train_private_diverged_keeps_weights(train, model) -> None:
    made = train(learning_rate=1e38, initial_threshold=1e6)
    assert made.status == "diverged"
    assert torch.equal(flat(made.model), flat(model))
    assert made.ledger.step_count < made.privacy_cost.unused_step_count
    assert 2.99 < made.epsilon <= 3


def test_evaluate_default_runs_at_end(train) -> None:
    """A resumed training evaluates at its end as well, and counts the earlier steps."""
    usual = {"batch_size": 400, "epsilon": 3.0, "evaluate": lambda model: 0.5}
    first = train(epochs=3, **usual)
    assert first.history.score_step == [3]
    usual["epsilon"] = 8.0
    assert train(resume_from=first, epochs=2, **usual).history.score_step == [3, 5]


class ToldError(Exception):
    """Stands where a training would begin, with what it was told."""


def test_train_private_options_reach_training(train, search, monkeypatch) -> None:
    """An option lost in train_private or search_private would silently get its default."""

    def tell(*told) -> None:
        raise ToldError(*told)

    monkeypatch.setattr("oso_dp.api.trainer.UserTraining", tell)
    said = {"schedule": "linear", "averaging": 0.5, "precision": "bfloat16", "microbatch_size": 7}
    said |= {"randomness": "seeded", "evaluate_every": 3}
    given = {**said, "method": "fixed_threshold", "threshold": 0.7, "momentum": 0.4, "seed": 5}
    given |= {"epochs": 4, "batch_size": 400, "epsilon": 3.0}
    told = []
    for call, more in (
        (train, {"learning_rate": 0.3}),
        (search, {"grid": {"learning_rate": [0.3]}}),
    ):
        with pytest.raises(ToldError) as caught:
            call(**given, **more)
        told.append(caught.value.args[:3])
    for recipe, run, problem in told:
        assert {name: getattr(recipe, name) for name in said} == said
        assert (recipe.steps, recipe.batch_size, recipe.device) == (4, 400, "cpu")
        assert (recipe.method.name, recipe.method.momentum) == ("fixed_threshold", 0.4)
        assert (run.learning_rate, run.threshold, run.seed) == (0.3, 0.7, 5)
        assert problem.engine.precision.name == "bfloat16"
        assert recipe.noise_multiplier == told[0][0].noise_multiplier


def test_statement_numbers_match_training(train) -> None:
    made = train(epochs=1.01)
    statement = made.statement
    assert statement.steps == statement.planned_steps == math.ceil(1.01 * 400 / 50)
    assert (statement.examples, statement.sampling_rate) == (400, 0.125)
    sums = dict(statement.releases)
    assert sums["clipped_direction"] / made.ledger.releases()[0][0] == pytest.approx(7.124)
    text = str(statement)
    for part in ("one example", "added or removed", "1e-05", "rdp", "not included", "online"):
        assert part in text
    assert f"{made.epsilon:.4g}" in text
    assert "cryptographic" in text
    assert "the seed reveals the noise" in str(train(**SEEDED).statement)


def test_resume_from_integer_start_accepted(train, search) -> None:
    """Integer starting values, as in a grid of `[1, 2]`, can be resumed."""
    best = search(grid={"learning_rate": [1, 2]}, method="online").best
    more = train(resume_from=best, batch_size=400, epsilon=6.0, epochs=1)
    assert more.history.learning_rate[0] == 1.0
    whole = train(method="fixed_threshold", learning_rate=1, threshold=2, epochs=1)
    more = train(resume_from=whole, method="fixed_threshold", epsilon=4.0, epochs=1)
    assert (more.history.learning_rate[0], more.statement.method) == (1.0, "fixed_threshold")


def test_statement_resumed_names_both_noises(train) -> None:
    first = train(method="online", epsilon=2.0)
    made = train(resume_from=first, epsilon=6.0, epochs=1)
    names = [name for name, _ in made.statement.releases]
    assert names == 2 * ["clipped_gradient", "clipped_direction"]
    booked = {(q.name, q.noise_multiplier) for queries, _ in made.ledger.steps for q in queries}
    assert set(made.statement.releases) == booked
    noise = [format_used_noise_multiplier(nu) for _, nu in made.statement.releases]
    assert (
        f"Sums: clipped_gradient with noise multiplier {noise[0]} or {noise[2]}, "
        f"clipped_direction with noise multiplier {noise[1]} or {noise[3]}."
    ) in str(made.statement)


def test_resume_from_streams_never_shared(train, monkeypatch) -> None:
    first = [
        train(**SEEDED, epsilon=epsilon, epochs=epochs, batch_size=400)
        for epsilon, epochs in ((1.0, 2), (1.1, 3))
    ]
    drawn = []
    words = Seeded.words
    monkeypatch.setattr(
        Seeded, "words", lambda self, *whose: drawn.append(whose) or words(self, *whose)
    )
    again = {"randomness": "seeded", "seed": 2, "epsilon": 3.0, "epochs": 3, "batch_size": 400}
    made = [train(**again, resume_from=one) for one in first]
    assert len({one.run_id for one in made}) == 2
    assert len(set(drawn)) == len(drawn) > 0


@pytest.mark.parametrize(("examples", "rate"), [(2000, 512 / 2000), (400, 1.0)])
def test_batch_size_default_512_or_all(train, examples, rate) -> None:
    data = torch.zeros(examples, 6), torch.zeros(examples, dtype=torch.long)
    made = train(data=data, batch_size=None, epochs=0.1)
    assert made.statement.sampling_rate == rate


REAL = os.urandom


class Recorded:
    """The system's bytes as they are handed out."""

    def __init__(self) -> None:
        self.given, self.again = b"", 0

    def record(self, count: int) -> bytes:
        made = REAL(count)
        self.given += made
        return made

    def repeat(self, count: int) -> np.ndarray:
        """The same bytes once more, as 64-bit words; fails where there were not as many."""
        part = self.given[self.again : self.again + 8 * count]
        self.again += 8 * count
        assert len(part) == 8 * count
        return np.frombuffer(part, "<u8")


@pytest.fixture
def recorded(monkeypatch) -> Recorded:
    made = Recorded()
    monkeypatch.setattr(os, "urandom", made.record)
    return made


@pytest.mark.parametrize("purpose", ["sampling", "draws", "score"])
@pytest.mark.parametrize("count", [1, 3, 5000])
def test_system_entropy_words_equal_urandom(recorded, purpose: str, count: int) -> None:
    words = get_source("system").words("run", purpose, 1)
    for _ in range(2):
        assert words(count).tolist() == recorded.repeat(count).tolist()
    assert recorded.again == len(recorded.given)


@pytest.mark.parametrize(("examples", "size"), [(40, 10), (1000, 500), (60_000, 512)])
def test_batch_rng_follows_system_bytes(recorded, examples: int, size: int) -> None:
    """The batches follow from the bytes of the system alone, not from a short seed."""
    sampling = PoissonSampling.of(size, examples)
    numbers = BatchRNG(get_source("system"), sampling, examples, torch.device("cpu"))
    for step in (1, 2):
        for row, own in zip(*numbers.batches(["a", "b"], step), strict=True):
            assert row[own].tolist() == sampling.draw(examples, recorded.repeat).tolist()
    assert recorded.again == len(recorded.given)
