"""What training goes on from stays as it was: it has its own books, history and weights."""

import pytest
import torch

SEEDED = {"randomness": "seeded", "seed": 3}


def kept(made) -> dict:
    return {
        "history": {name: list(values) for name, values in vars(made.history).items()},
        "paid": made.paid.to_json(),
        "statement": made.statement.to_json(),
        "weights": [p.detach().tolist() for p in made.model.parameters()],
        "state": {
            name: repr(value.tolist() if torch.is_tensor(value) else value)  # nan is no nan's equal
            for name, value in made.state.items()
            if name != "memory"
        },
    }


@pytest.mark.parametrize("method", ["online", "fixed_quantile_linear"])
def test_an_earlier_training_is_what_it_was_however_often_another_goes_on(train, method) -> None:
    more = {"method": method, "epochs": 4, "batch_size": 400, **SEEDED}
    more |= {"quantile": 0.5} if method != "online" else {}
    more |= {"evaluate": lambda model: 0.5, "evaluate_every": 2}
    first = train(**more)
    before = kept(first)
    later = [train(**more, after=first, epsilon=9.0) for _ in range(2)]
    assert kept(first) == before
    # Each goes on from the first, not from where another has gone.
    for one in later:
        assert one.history.step == list(range(1, 9))
        assert one.history.score_step == [2, 4, 6, 8]
        assert one.ledger.step_count == 8
    assert kept(later[0]) == kept(later[1])
