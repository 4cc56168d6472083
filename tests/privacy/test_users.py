"""Users: whose rows are whose, their local steps, and a unit that is never added to another."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import Given

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.promise import EXAMPLE, USER
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.users import Users

CPU = torch.device("cpu")
# Few ids for many rows and the reverse; at least two.
some = st.lists(st.integers(-3, 12), min_size=2, max_size=80).filter(lambda one: len({*one}) > 1)
# One user may have more rows than go through a model at once.
ids = st.builds(lambda first, more: [*first, *[first[0]] * more], some, st.sampled_from([0, 150]))
options = st.builds(
    LocalTraining,
    epochs=st.integers(1, 3),
    batch_size=st.none() | st.integers(1, 90),
    rows_per_user=st.none() | st.integers(1, 100),
)


def backwards(user: int, epoch: int, rows: np.ndarray) -> np.ndarray:
    return rows[::-1] if (user + epoch) % 2 else rows


GROUP = 20  # as many users as there are at most


def steps_of(users: Users, chosen: list[int], local: LocalTraining) -> list[list]:
    return list(users.local_steps(chosen, GROUP, local, backwards, CPU))


@given(ids=ids)
def test_users_rows_partitioned_by_id(ids) -> None:
    users = Users(np.array(ids))
    assert len(users) == len({*ids})
    rows = [users.rows_of(user).tolist() for user in range(len(users))]
    assert sorted(row for own in rows for row in own) == [*range(len(ids))]
    assert all(len({ids[row] for row in own}) == 1 for own in rows)
    firsts = [own[0] for own in rows]
    assert firsts == sorted(firsts)
    assert users.first_rows(torch.arange(len(users))).tolist() == firsts
    texts = Users(np.array([f"user {one}" for one in ids]))
    assert [texts.rows_of(user).tolist() for user in range(len(texts))] == rows


@settings(max_examples=60)
@given(ids=ids, local=options, data=st.data())
def test_users_local_steps_take_rows_once(ids, local, data) -> None:
    users = Users(np.array(ids), local.rows_per_user)
    chosen = data.draw(st.lists(st.integers(0, len(users) - 1), min_size=1, unique=True))
    steps = steps_of(users, chosen, local)
    for place, user in enumerate(chosen):
        taken = []
        for step in steps:
            weights = [
                (row, weight)
                for part in step
                for row, weight in zip(
                    part.rows[place].tolist(), part.weights[place].tolist(), strict=True
                )
                if weight > 0
            ]
            if weights:
                # The mean over the local batch.
                assert len(weights) <= (local.batch_size or len(ids))
                assert sum(weight for _, weight in weights) == pytest.approx(1.0, rel=1e-5)
                assert len({weight for _, weight in weights}) == 1
            taken += [row for row, _ in weights]
        own = users.rows_of(user).tolist()
        assert len(own) <= (local.rows_per_user or len(ids))
        for epoch in range(local.epochs):
            order = own if local.batch_size is None else backwards(user, epoch, own)
            assert taken[epoch * len(own) : (epoch + 1) * len(own)] == order
        assert len(taken) == local.epochs * len(own)


@settings(max_examples=60)
@given(ids=ids, local=options, data=st.data())
def test_users_local_steps_equal_alone(ids, local, data) -> None:
    """Rows, weights and batch shapes of a user do not depend on the other drawn users."""
    users = Users(np.array(ids), local.rows_per_user)
    chosen = data.draw(st.lists(st.integers(0, len(users) - 1), min_size=1, unique=True))

    def rows_and_weights(place: int, steps: list[list]) -> list:
        found = [(part.rows[place], part.weights[place]) for step in steps for part in step]
        return [(rows.tolist(), one.tolist()) for rows, one in found if one.any()]

    together = steps_of(users, chosen, local)
    width = min(64, local.batch_size or local.rows_per_user or 64)
    assert {part.rows.shape for step in together for part in step} == {(GROUP, width)}
    for place, user in enumerate(chosen):
        alone = rows_and_weights(0, steps_of(users, [user], local))
        assert rows_and_weights(place, together) == alone
    assert not any(part.weights[len(chosen) :].any() for step in together for part in step)


@given(ids=ids, size=st.integers(1, 9), data=st.data())
def test_users_groups_contain_users_once(ids, size, data) -> None:
    users = Users(np.array(ids))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(users) - 1))))
    groups = [group.tolist() for group in users.groups(torch.tensor(chosen).long(), size)]
    assert sorted(user for group in groups for user in group) == chosen
    assert all(len(group) <= size for group in groups)


def test_users_empty_choice_gives_no_steps() -> None:
    users = Users(np.array([1, 1, 2]))
    assert [part for step in steps_of(users, [], LocalTraining(2, 1)) for part in step] == []


def test_users_single_id_rejected() -> None:
    with pytest.raises(OsoError, match="one id only; must be the ids of at least two users"):
        Users(np.array([3, 3, 3]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "local.epochs: 0; must be an integer >= 1 and <= "),
        ({"epochs": None}, "local.epochs: None; must be an integer >= 1 and <= "),
        ({"batch_size": True}, "local.batch_size: True; must be an integer >= 1 and <= "),
        ({"rows_per_user": 1.5}, "local.rows_per_user: 1.5; must be an integer >= 1 and <= "),
        ({"learning_rate": 0}, "local.learning_rate: 0; must be a number > 0 and <= 1e"),
        (
            {"learning_rate": float("nan")},
            "local.learning_rate: nan; must be a finite number > 0 and <= 1e",
        ),
        ({"epochs": 1001}, "local.epochs: 1001; must be an integer >= 1 and <= 1000"),
        ({"learning_rate": 10**400}, "local.learning_rate: 1000"),
        (
            {"learning_rate": float("inf")},
            "local.learning_rate: inf; must be a finite number > 0 and <= 1e",
        ),
    ],
)
def test_local_training_invalid_option_rejected(values, message) -> None:
    with pytest.raises(OsoError, match=message):
        LocalTraining(**values)


def ledger(unit, count: int = 3) -> Ledger:
    return Ledger(PoissonSampling(0.1, unit), [((SumQuery("x", 2.0),), count)])


def test_ledger_json_keeps_unit() -> None:
    assert Ledger.from_json(ledger(USER).to_json()) == ledger(USER)
    assert "unit" not in ledger(EXAMPLE).to_json()
    with pytest.raises(OsoError, match="unit 'row'; must be one of example, user"):
        Ledger.from_json(ledger(USER).to_json().replace('"user"', '"row"'))


@pytest.mark.parametrize("accountant", ["rdp", "pld", "prv"])
def test_compute_epsilon_mixed_units_rejected(accountant) -> None:
    with pytest.raises(OsoError, match="protect example and user; must protect one unit"):
        compute_epsilon([ledger(USER), ledger(EXAMPLE)], 1e-5, accountant)
    # One user's epsilon is the same number as one example's, of equal batches of records.
    both = [compute_epsilon([ledger(unit)] * 2, 1e-5, accountant) for unit in (USER, EXAMPLE)]
    assert both[0] == both[1] > 0


def test_mechanism_resume_other_unit_rejected() -> None:
    mechanism = Mechanism(["a"], 20, 2, unit=USER)
    with pytest.raises(ValueError, match="must be those of 3 steps of these runs"):
        mechanism.resume([ledger(EXAMPLE)], 3)
    mechanism.resume([ledger(USER)], 3)
    queries = (ClippedGradient(2.0, torch.ones(1)),)
    mechanism.release(
        slice(0, 1), 4, queries, lambda runs, batch: Given(torch.ones(1, batch.shape[1], 2))
    )
    assert mechanism.ledgers[0].sampling.unit == USER
