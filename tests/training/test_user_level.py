"""Training of users: one row each is training of examples, and a user moves a sum by at most C."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.gradients.local_updates import train_locally
from oso_dp.methods import Method, find_method, method_names
from oso_dp.models import build_model
from oso_dp.models.losses import LOSSES
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.promise import EXAMPLE, USER
from oso_dp.privacy.queries import QUERIES, ClippedGradient, PlainGradient, Query
from oso_dp.privacy.unnoised_sums import unnoised_sums
from oso_dp.privacy.users import Users
from oso_dp.study.cohort import Run
from oso_dp.training.loop import Training
from oso_dp.training.task import TensorExamples, TrainConfig, TrainingProblem
from oso_dp.training.user_updates import make_updates

ROWS = 90
STEPS = 9
ONE_ROW = LocalTraining(rows_per_user=1)
FEDAVG = LocalTraining(epochs=2, batch_size=4, learning_rate=0.2)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 3))


def data(rows: int = ROWS, shape: tuple[int, ...] = (5,)) -> TensorExamples:
    made = torch.Generator().manual_seed(3)
    inputs = torch.randn(rows, *shape, generator=made)
    return TensorExamples(inputs, torch.randint(3, (rows,), generator=made))


def problem(
    users: Users | None = None,
    local: LocalTraining | None = None,
    model: Callable[[], nn.Module] = mlp,
    examples: TensorExamples | None = None,
    runs: int = 1,
) -> TrainingProblem:
    torch.manual_seed(1)
    module = model()
    first = nn.utils.parameters_to_vector(module.parameters()).detach()
    engine = GradientEngine(module, LOSSES["accuracy"])
    return TrainingProblem(
        engine,
        examples or data(),
        first.expand(runs, -1).clone(),
        users=users,
        local=local or LocalTraining(),
        classes=3,
    )


def method(name: str) -> Method:
    kind = find_method(name)
    return kind(kind.Options(), 0.9)


def training(made: TrainingProblem, name: str = "fixed_threshold", **options) -> Training:
    runs = [
        Run(f"run {number}", 0, 0.2 * (number + 1), 0.3, 0.5)
        for number in range(len(made.initial_parameters))
    ]
    usual = {"noise_multiplier": 1.1, "batch_size": 30, "steps": STEPS, "evaluate_every": STEPS}
    return Training(TrainConfig(method=method(name), **{**usual, **options}), runs, made)


def trained(*arguments, **options) -> Training:
    started = training(*arguments, **options)
    for _ in range(STEPS):
        started.take_step()
    return started


@pytest.mark.parametrize("name", method_names())
def test_training_one_row_limit_equals_examples(name) -> None:
    ids = np.random.default_rng(0).permutation(ROWS)
    noise = {} if find_method(name).is_private else {"noise_multiplier": 0.0}
    examples = trained(problem(runs=2), name, **noise)
    users = trained(problem(Users(ids), ONE_ROW, runs=2), name, **noise)
    assert torch.equal(users.state.parameters, examples.state.parameters)
    assert torch.equal(users.state.learning_rate, examples.state.learning_rate)
    assert users.ledger(1).releases() == examples.ledger(1).releases()
    assert (users.ledger(0).sampling.unit, examples.ledger(0).sampling.unit) == (USER, EXAMPLE)


@pytest.mark.parametrize("model", [dropout, lambda: build_model("small_cnn")])
@pytest.mark.parametrize("microbatch_size", [None, 7])
def test_training_one_row_microbatches_equal_examples(model, microbatch_size) -> None:
    examples = data(40, (1, 14, 14)) if model is not dropout else data(40)
    both = [
        trained(
            problem(users, users and ONE_ROW, model, examples),
            "online",
            batch_size=13,
            microbatch_size=microbatch_size,
        )
        for users in (Users(np.arange(40)), None)
    ]
    assert torch.equal(both[0].state.parameters, both[1].state.parameters)


def test_training_one_row_users_approximate_examples() -> None:
    """The number of rows per user is private, so it must not select another code path."""
    examples, users = trained(problem()), trained(problem(Users(np.arange(ROWS))))
    assert not torch.equal(users.state.parameters, examples.state.parameters)
    torch.testing.assert_close(
        users.state.parameters, examples.state.parameters, rtol=1e-4, atol=1e-5
    )


def test_training_row_limit_equals_chosen_rows() -> None:
    ids = np.random.default_rng(1).integers(20, size=ROWS)
    first = np.sort(np.unique(ids, return_index=True)[1])
    examples = data()
    chosen = TensorExamples(examples.inputs[first], examples.targets[first])
    alone = trained(problem(examples=chosen), batch_size=9)
    users = trained(problem(Users(ids, rows_per_user=1), ONE_ROW), batch_size=9)
    assert torch.equal(users.state.parameters, alone.state.parameters)


def test_training_noiseless_fedsgd_step_equals_sgd() -> None:
    ids = np.arange(ROWS) % 7 // 2  # users of 26, 26, 26 and 12 or so rows
    made = problem(Users(ids))
    started = training(made, batch_size=4, noise_multiplier=0.0)
    started.state.threshold = torch.tensor([1e9])
    started.take_step()
    model, examples = mlp(), data()
    nn.utils.vector_to_parameters(made.initial_parameters[0], model.parameters())
    losses = nn.functional.cross_entropy(model(examples.inputs), examples.targets, reduction="none")
    numbers = torch.tensor(ids)
    means = [losses[numbers == user].mean() for user in range(4)]
    gradient = torch.cat(
        [one.flatten() for one in torch.autograd.grad(sum(means) / 4, [*model.parameters()])]
    )
    expected = made.initial_parameters[0] - 0.2 * gradient
    torch.testing.assert_close(started.state.parameters[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("local", [LocalTraining(), FEDAVG], ids=["FedSGD", "FedAvg"])
def test_training_sum_divided_by_batch_size(local) -> None:
    """The sum is not divided by the realised number of users or of rows, which are private."""
    ids, seen = np.arange(ROWS) // 9, {}
    started = training(problem(Users(ids), local), batch_size=4, noise_multiplier=0.0)
    started.watch = lambda state, answers: seen.update(answers)
    started.state.threshold = torch.tensor([0.05])
    started.take_step()
    again = training(problem(Users(ids), local), batch_size=4, noise_multiplier=0.0)
    again.state.step = 1  # by which users shuffle
    indices, present = again.mechanism.random_numbers.batches(["run 0"], 1)
    users = indices[present][None]
    assert users.shape[1] not in (0, 4)
    sums = again.gradients(slice(0, 1), users)
    norms = sums.norms()
    clipped = sums.weighted_sums((0.05 / norms).clamp(max=1)[:, None])[:, 0]
    torch.testing.assert_close(seen[ClippedGradient], clipped / 4, rtol=1e-4, atol=1e-8)


def sums_of(made: TrainingProblem, users: list[int], queries: list[Query]) -> list[Tensor]:
    started = training(made, batch_size=1)
    started.state.step = 1
    indices = torch.tensor(users, dtype=torch.int64)[None]
    present = torch.ones_like(indices, dtype=torch.bool)
    return unnoised_sums(queries, slice(0, 1), started.gradients(slice(0, 1), indices), present)


values = st.floats(-1e6, 1e6, width=32) | st.sampled_from([1e20, -3e38, float("nan"), float("inf")])


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(values, min_size=5, max_size=5), min_size=1, max_size=9),
    threshold=st.floats(1e-4, 1e3),
    local=st.sampled_from([LocalTraining(), FEDAVG, LocalTraining(3, None, 5.0)]),
)
def test_unnoised_sums_user_change_within_sensitivity(rows, threshold, local) -> None:
    """The bound holds for any number of rows of a user and any values in them."""
    others = data(20)
    inputs = torch.cat([others.inputs, torch.tensor(rows, dtype=torch.float32)])
    targets = torch.cat([others.targets, torch.zeros(len(rows), dtype=torch.int64)])
    ids = np.concatenate([np.arange(20) // 5, np.full(len(rows), 99)])
    made = problem(Users(ids), local, examples=TensorExamples(inputs, targets))
    at = torch.tensor([threshold])
    queries = [kind(1.0, at) for kind in QUERIES if kind is not PlainGradient]
    without, with_user = (sums_of(made, users, queries) for users in ([0, 1, 2, 3], range(5)))
    for query, before, after in zip(queries, without, with_user, strict=True):
        limit = float(torch.as_tensor(query.sensitivity(slice(0, 1))).max())
        change = float((after.double() - before.double()).norm())
        # The sums are of float32: of four other users of the same size, at most.
        assert change <= limit * (1 + 1e-4), query.name


@pytest.mark.parametrize("local", [LocalTraining(), FEDAVG], ids=["FedSGD", "FedAvg"])
def test_unnoised_sums_outlier_user_reaches_sensitivity(local) -> None:
    far = torch.cat([data(20).inputs, torch.full((3, 5), 1e3)])
    targets = torch.cat([data(20).targets, torch.arange(3)])
    ids = np.concatenate([np.arange(20) // 5, np.full(3, 99)])
    made = problem(Users(ids), local, examples=TensorExamples(far, targets))
    query = ClippedGradient(1.0, torch.tensor([0.05]))
    without, with_user = (sums_of(made, users, [query])[0] for users in ([0, 1], [0, 1, 4]))
    assert float((with_user - without).norm()) == pytest.approx(0.05, rel=1e-4)


# So unstable that a difference in the last bit becomes one of the update's size.
CHAOTIC = LocalTraining(epochs=100, batch_size=64, learning_rate=10.0)
SIZES = [9, 1, 30, 4, 12, 8, 26]


class Scaled(nn.Module):
    """Has a parameter beside its layers, as ConvNeXt's layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2, 5))
        self.layer = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs * self.scale)


@pytest.mark.parametrize("model", [mlp, Scaled])
@pytest.mark.parametrize("is_public", [True, False])
def test_make_updates_fedsgd_equals_mean_gradient(model, is_public) -> None:
    examples, ids = data(20), np.repeat(np.arange(4), [3, 9, 1, 7])
    made = problem(Users(ids), model=model, examples=examples)
    flat = made.initial_parameters[0]
    places = torch.tensor([2, 0, 1])
    found = make_updates(made, flat, places, lambda *args: args[-1], is_public).updates
    for user, update in zip(places.tolist(), found, strict=True):
        rows = torch.from_numpy(np.flatnonzero(ids == user))
        inputs, targets = examples.inputs[rows], examples.targets[rows]
        weights = torch.full((len(rows),), 1 / len(rows))
        _, expected = made.engine.weighted_gradient(flat, inputs, targets, weights)
        torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [mlp, lambda: build_model("small_cnn")], ids=["mlp", "cnn"])
def test_make_updates_ignore_other_private_users(model) -> None:
    """Updates are bitwise equal with any other users, even if local training is unstable."""
    local = CHAOTIC if model is mlp else replace(CHAOTIC, epochs=4)
    examples = data(sum(SIZES), (5,) if model is mlp else (1, 14, 14))
    ids = np.repeat(np.arange(len(SIZES)), SIZES)

    def updates(there: list[int], drawn: list[int]) -> dict[int, Tensor]:
        """By the user's id, of those drawn among those who are there."""
        rows = np.flatnonzero(np.isin(ids, there))
        chosen = TensorExamples(examples.inputs[rows], examples.targets[rows])
        made = problem(Users(ids[rows]), local, model, chosen)
        places = torch.tensor([sorted(there).index(user) for user in drawn])

        def shuffle(user: int, epoch: int, own: np.ndarray) -> np.ndarray:
            return np.roll(own, epoch)

        flat = made.initial_parameters[0]
        found = make_updates(made, flat, places, shuffle, is_public=False).updates
        return dict(zip(drawn, found, strict=True))

    everyone = updates([*range(len(SIZES))], [*range(len(SIZES))])
    assert min(float(one.norm()) for one in everyone.values()) > 1
    for there, drawn in (
        ([0, 1, 2, 3], [1, 3]),
        ([1, 2, 3, 4, 5, 6], [6, 2, 1]),
        ([2, 6], [2, 6]),
        ([*range(len(SIZES))], [5, 4, 0]),
    ):
        for user, update in updates(there, drawn).items():
            assert torch.equal(update, everyone[user]), (there, drawn, user)


@pytest.mark.parametrize("local", [FEDAVG, LocalTraining()], ids=["FedAvg", "FedSGD"])
@pytest.mark.parametrize("is_public", [True, False])
def test_make_updates_private_users_train_singly(is_public, local, monkeypatch) -> None:
    """In a group, rounding in a product could reveal the other users."""
    sizes = []

    def train(engine, flat, group_size, *rest):
        sizes.append(group_size)
        return train_locally(engine, flat, group_size, *rest)

    monkeypatch.setattr("oso_dp.training.user_updates.train_locally", train)
    made = problem(Users(np.arange(20) % 5), local, mlp, data(20))
    make_updates(
        made, made.initial_parameters[0], torch.arange(5), lambda *args: args[-1], is_public
    )
    assert set(sizes) == ({16} if is_public else {1})


def test_training_zero_update_stays_finite() -> None:
    zero = TensorExamples(torch.zeros(ROWS, 5), data().targets)
    made = problem(Users(np.arange(ROWS) // 9), FEDAVG, lambda: nn.Linear(5, 3, bias=False), zero)
    done = trained(made, "online", batch_size=4)
    assert done.state.parameters.isfinite().all()
    assert done.alive == [0]


@pytest.mark.parametrize("microbatch_size", [1, 3, None])
def test_training_microbatches_match_full_batch(microbatch_size) -> None:
    users = Users(np.arange(ROWS) // 6)
    whole = trained(problem(users, FEDAVG), batch_size=8)
    cut = trained(problem(users, FEDAVG), batch_size=8, microbatch_size=microbatch_size)
    torch.testing.assert_close(cut.state.parameters, whole.state.parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["online", "fixed_quantile", "adam_wosm"])
def test_training_joint_run_equals_separate(name) -> None:
    users = Users(np.arange(ROWS) // 6)
    options = {"batch_size": 8, "noise_multiplier": 0.5}
    two = trained(problem(users, FEDAVG, runs=2), name, **options)
    one = trained(problem(users, FEDAVG), name, **options)
    assert torch.equal(two.state.parameters[0], one.state.parameters[0])
    assert torch.equal(two.state.threshold[:1], one.state.threshold)


def test_training_noise_matches_clipping_threshold() -> None:
    """C moves after its round, and noise of the next C would not match the ledger."""
    users, seen = Users(np.arange(ROWS) // 6), []
    started = training(problem(users, FEDAVG), "fixed_quantile", batch_size=8, noise_multiplier=0.5)
    add_noise = started.mechanism.random_numbers.add_noise

    def watched(run_ids, step, totals, noise):
        seen.append(noise[0].deviation.item())
        return add_noise(run_ids, step, totals, noise)

    started.mechanism.random_numbers.add_noise = watched
    for _ in range(4):
        threshold = started.state.threshold.item()
        (query, _) = started.task.method.queries(started.state)
        started.take_step()
        assert seen[-1] == pytest.approx(query.noise_multiplier * threshold, rel=1e-6)
        assert started.state.threshold.item() != threshold


def test_training_resumed_run_equals_uninterrupted() -> None:
    users = Users(np.arange(ROWS) // 6)
    whole = trained(problem(users, FEDAVG), batch_size=8)
    first = training(problem(users, FEDAVG), batch_size=8)
    for _ in range(4):
        first.take_step()
    content = {**first.content(), "state": dict(vars(first.state))}
    later = training(problem(users, FEDAVG), batch_size=8)
    later.restore(content)
    for _ in range(STEPS - 4):
        later.take_step()
    assert torch.equal(later.state.parameters, whole.state.parameters)
    numbers = whole.mechanism.random_numbers
    rows = np.arange(40)
    orders = {
        tuple(numbers.shuffle(run, step, purpose, rows))
        for run in ("a", "b")
        for step in (1, 2)
        for purpose in ("0/0", "0/1", "1/0", "10/0")
    }
    assert len(orders) == 16
    assert all(sorted(order) == [*rows] for order in orders)


def test_ledger_counts_user_rounds() -> None:
    done = trained(problem(Users(np.arange(ROWS) // 6), FEDAVG), batch_size=8)
    stored = json.loads(done.ledger(0).to_json())
    assert (stored["unit"], stored["sampling_rate"]) == ("user", 8 / 15)
    assert [step["count"] for step in stored["steps"]] == [STEPS]


@pytest.mark.parametrize(
    ("local", "model", "options", "message"),
    [
        (FEDAVG, dropout, {}, "users: the model draws random numbers"),
        (LocalTraining(), dropout, {}, "users: the model draws random numbers"),
        (FEDAVG, mlp, {"precision": "bfloat16"}, "precision: 'bfloat16'; must be float32"),
        (FEDAVG, mlp, {"augment": lambda one: one}, "augment: not supported with users"),
        (LocalTraining(), mlp, {"augment": lambda one: one}, "augment: not supported with users"),
        (FEDAVG, mlp, {"batch_size": 16}, "batch_size: 16; must be .* number of users, 15"),
    ],
)
def test_training_unsupported_user_options_raise(local, model, options, message) -> None:
    with pytest.raises(OsoError, match=message):
        training(problem(Users(np.arange(ROWS) // 6), local, model), **{"batch_size": 8, **options})


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {}])
def test_training_rejection_ignores_row_counts(options) -> None:
    """One user's second row must not decide whether the others' training is refused."""
    model = mlp if options else dropout
    for ids in (np.arange(ROWS), np.maximum(np.arange(ROWS), 1)):
        with pytest.raises(OsoError):
            training(problem(Users(ids), model=model), batch_size=8, **options)
        training(problem(Users(ids), ONE_ROW, model), batch_size=8, **options)


def test_training_process_group_raises() -> None:
    made = problem(Users(np.arange(ROWS) // 6))
    with pytest.raises(OsoError, match=r"users: not supported in a torch\.distributed group"):
        training(made, batch_size=8, group=replace(ProcessGroup(), count=2))
