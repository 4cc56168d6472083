"""`train_private(users=...)`: the statement names the user, and what does not fit is refused."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from oso_dp import load_private, search_private, train_private
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.promise import USER
from oso_dp.privacy.sampling import PoissonSampling

ROWS, USERS = 240, 60
LOSS = nn.CrossEntropyLoss(reduction="none")
IDS = np.arange(ROWS) // (ROWS // USERS)
FEDAVG = {"epochs": 2, "batch_size": 3, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(dim=1) > 0).long()


def train(rows, **options):
    usual = {"epsilon": 4.0, "delta": 1e-3, "epochs": 3, "batch_size": 20, "progress": False}
    torch.manual_seed(0)
    seeded = {"randomness": "seeded", "seed": 0, "method": "fixed_threshold", "threshold": 0.5}
    return train_private(nn.Linear(5, 2), LOSS, rows, **{**usual, **seeded, **options})


@pytest.mark.parametrize("local", [None, FEDAVG])
def test_users_epsilon_counts_user_batches(rows, local) -> None:
    trained = train(rows, users=IDS, local=local)
    sampling = PoissonSampling(20 / USERS, USER)
    assert trained.ledger.sampling == sampling
    assert trained.statement.steps == 3 * USERS // 20
    assert trained.statement.examples == USERS
    spent = compute_epsilon([trained.ledger], 1e-3)
    assert trained.epsilon == pytest.approx(spent, rel=1e-6)
    assert 3.9 < spent <= 4.0
    assert trained.status == "finished"


def test_statement_users_named_rows_hidden(rows) -> None:
    text = str(train(rows, users=IDS, local=FEDAVG).statement)
    assert "Protected: one user: all rows of the training data with one id." in text
    assert "differ by one user added or removed" in text
    assert f"of {USERS} users" in text
    assert (
        "2 epochs of SGD on all of their rows, in batches of 3 rows, at learning rate 0.1" in text
    )
    assert str(ROWS) not in text
    assert "example" not in text.partition("Tuning:")[0]
    fedsgd = str(train(rows, users=IDS, local={"rows_per_user": 2}).statement)
    assert "Each user: the mean gradient of the first 2 of their rows (FedSGD)." in fedsgd


def test_statement_delta_compared_with_users(rows) -> None:
    warning = "Delta is not below 1 / 60: publishing one of 60 users"
    assert warning in str(train(rows, users=IDS, delta=1 / 59).statement)
    assert warning not in str(train(rows, users=IDS, delta=1 / 61).statement)


KINDS = {
    "list": lambda ids: ids.tolist(),
    "texts": lambda ids: [f"patient {one}" for one in ids],
    "tensor": torch.from_numpy,
    "series": lambda ids: pd.Series(ids),
    "texts in a series": lambda ids: pd.Series([f"patient {one}" for one in ids]),
    "unsigned": lambda ids: ids.astype(np.uint8),
    "numpy's texts in a list": lambda ids: [*ids.astype(str)],
    "texts of two kinds": lambda ids: [*ids[:9].astype(str), *map(str, ids[9:])],
    "hashes of 64 bits": lambda ids: [2**63 + int(one) for one in ids],
    "negative": lambda ids: (ids - 9).tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_users_id_types_match(rows, kind) -> None:
    expected = train(rows, users=IDS, local=FEDAVG).model.weight
    assert torch.equal(train(rows, users=KINDS[kind](IDS), local=FEDAVG).model.weight, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": IDS[:-1]}, "users: 239 ids for 240 rows; must be one for each row"),
        ({"users": np.zeros(ROWS, dtype=int)}, "users: one id only"),
        ({"users": IDS.astype(float)}, r"users: float64 \[240\]; must be one id for each row"),
        ({"users": [None, *IDS[1:]]}, r"users: object \[240\]; must be one id for each row"),
        ({"users": [math.nan, *map(str, IDS[1:])]}, r"users: object \[240\]; must be one id"),
        ({"users": ["1", *IDS[1:].tolist()]}, r"users: object \[240\]; must be one id for each"),
        ({"users": [True, *IDS[1:].tolist()]}, r"users: object \[240\]; must be one id for each"),
        ({"users": [2**70, *IDS[1:].tolist()]}, "users: list; .*, all integers of 64 bits or"),
        ({"users": [-1, 2**63, *IDS[2:].tolist()]}, "users: list; .*, all integers of 64 bits or"),
        ({"users": ["1", "", *map(str, IDS[2:])]}, "users: '' for row 1; .*, none missing or em"),
        ({"users": [[1, 2], [3]]}, "users: object .*; must be one id for each row"),
        ({"users": torch.ones(ROWS, dtype=torch.bfloat16)}, "users: .*; must be one id for each"),
        ({"users": IDS.reshape(-1, 2)}, r"users: int64 \[120, 2\]; must be one id for each row"),
        ({"users": np.ma.masked_array(IDS, IDS == 3)}, "users: MaskedArray; must be one id for"),
        ({"users": IDS > 3}, r"users: bool \[240\]; must be one id for each row"),
        ({"local": FEDAVG}, "local: has no effect without users"),
        ({"users": IDS, "local": {"epoch": 2}}, "local: unknown option 'epoch'; did you mean ep"),
        ({"users": IDS, "local": 3}, "local: int; must map names to values"),
        ({"users": IDS, "local": {"batch_size": 0}}, "local.batch_size: 0; must be an integer"),
        ({"users": IDS, "local": {"learning_rate": 1e300}}, "must be a number > 0 and <= 1e"),
        ({"users": IDS, "batch_size": 61}, "batch_size: 61; must be <= the number of users, 60"),
        (
            {"users": IDS, "method": "fixed_quantile", "quantile": 0.5, "threshold": None,
             "batch_size": 8},
            "count_noise: 0.05; must be > .*raise it, or take a larger batch",
        ),
    ],
)  # fmt: skip
def test_users_invalid_options_rejected(rows, options, message) -> None:
    with pytest.raises(OsoError, match=message) as error:
        train(rows, **options)
    assert "\n" not in str(error.value)


def test_resume_from_users_requires_users(rows, tmp_path) -> None:
    first = train(rows, users=IDS, local=FEDAVG, epsilon=2.0)
    first.save(tmp_path / "model")
    loaded = load_private(tmp_path / "model", nn.Linear(5, 2))
    assert loaded.statement == first.statement
    further = train(rows, users=IDS, local=FEDAVG, resume_from=loaded, threshold=None)
    assert further.epsilon <= 4.0
    assert further.ledger.step_count == 2 * first.ledger.step_count
    with pytest.raises(OsoError, match="users: must be given, as in resume_from"):
        train(rows, resume_from=loaded, threshold=None)
    with pytest.raises(OsoError, match=r"local: the mean gradient .*; must be the change"):
        train(rows, users=IDS, resume_from=loaded, threshold=None)
    with pytest.raises(OsoError, match="users: must be left out, as in resume_from"):
        train(rows, users=IDS, resume_from=train(rows, epsilon=1.0), threshold=None)


def test_checkpoint_other_local_rejected(rows, tmp_path) -> None:
    path = tmp_path / "state"
    options = {"checkpoint": path, "randomness": "system", "seed": None}
    train(rows, users=IDS, local=FEDAVG, **options)
    with pytest.raises(OsoError, match=r"local is \{'epochs': 2, .*; must be \{'epochs': 1, "):
        train(rows, users=IDS, local={**FEDAVG, "epochs": 1}, **options)
    # As a number of its own: a random name may contain its digits.
    assert not re.search(rb"(?<![\w.])%d(?![\w.])" % ROWS, path.read_bytes())


def test_search_private_users_meets_budget(rows) -> None:
    grid = {"learning_rate": [0.5, 2.0]}
    options = {
        "epsilon": 4.0, "delta": 1e-3, "epochs": 2, "batch_size": 20, "progress": False,
        "users": IDS, "method": "fixed_threshold", "threshold": 0.5,
    }  # fmt: skip
    found = search_private(nn.Linear(5, 2), LOSS, rows, grid, score=lambda model: 0.0, **options)
    assert found.best.statement.unit == "user"
    ledgers = found.best.privacy_cost.ledgers()
    assert len(ledgers) == 2
    assert found.best.epsilon == pytest.approx(compute_epsilon(ledgers, 1e-3), rel=1e-6)
    with pytest.raises(OsoError, match="validation: a noisy score protects an example"):
        search_private(nn.Linear(5, 2), LOSS, rows, grid, validation=rows, **options)


def test_users_pair_dataset_matches_arrays(rows) -> None:
    pairs = torch.utils.data.Subset(torch.utils.data.TensorDataset(*rows), range(ROWS))
    expected = train(rows, users=IDS, local=FEDAVG).model.weight
    assert torch.equal(train(pairs, users=IDS, local=FEDAVG).model.weight, expected)


def test_users_unusable_rows_accepted(rows) -> None:
    """Unusable rows count as absent, even if one user has most of the first rows."""
    inputs = torch.cat([torch.full((90, 5), torch.nan), rows[0]])
    targets = torch.cat([torch.zeros(90, dtype=torch.int64), rows[1]])
    pairs = torch.utils.data.Subset(torch.utils.data.TensorDataset(inputs, targets), range(330))
    users = np.concatenate([np.full(90, 999), IDS])
    assert train(pairs, users=users, local=FEDAVG).status == "finished"


@pytest.mark.parametrize(
    ("local", "rates"),
    [(FEDAVG, [1.0, 1.0]), (None, [3.0, 2.67]), ({"rows_per_user": 2}, [3, 2.67])],
)
def test_local_without_method_sets_rate(rows, local, rates) -> None:
    trained = train(rows, users=IDS, local=local, method=None, threshold=None)
    assert trained.statement.method == "online"
    assert trained.history.learning_rate[:2] == pytest.approx(rates, rel=0.01)
    assert trained.history.threshold[0] == 1.0
