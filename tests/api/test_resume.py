"""What training goes on from stays as it was: it has its own books, history and weights."""

import pytest
import torch

from oso_dp import load_private

SEEDED = {"randomness": "seeded", "seed": 3}


def kept(made) -> dict:
    return {
        "history": {name: list(values) for name, values in vars(made.history).items()},
        "privacy_cost": made.privacy_cost.to_json(),
        "statement": made.statement.to_json(),
        "weights": [p.detach().tolist() for p in made.model.parameters()],
        "state": {
            name: repr(value.tolist() if torch.is_tensor(value) else value)  # nan is no nan's equal
            for name, value in made.state.items()
            if name != "buffers"
        },
    }


@pytest.mark.parametrize("method", ["online", "fixed_quantile_linear"])
def test_an_earlier_training_is_what_it_was_however_often_another_goes_on(train, method) -> None:
    more = {"method": method, "epochs": 4, "batch_size": 400, **SEEDED}
    more |= {"quantile": 0.5} if method != "online" else {}
    more |= {"evaluate": lambda model: 0.5, "evaluate_every": 2}
    first = train(**more)
    before = kept(first)
    later = [train(**more, resume_from=first, epsilon=9.0) for _ in range(2)]
    assert kept(first) == before
    # Each goes on from the first, not from where another has gone.
    for one in later:
        assert one.history.step == list(range(1, 9))
        assert one.history.score_step == [2, 4, 6, 8]
        assert one.ledger.step_count == 8
    assert kept(later[0]) == kept(later[1])


HOW = {"momentum": 0.3, "schedule": "linear", "averaging": 0.5, "query_noise_ratio": 5.0}
MORE = {"epochs": 4, "batch_size": 400, **SEEDED}


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("method", ["online", None])
def test_what_is_not_said_again_stays(train, model, tmp_path, saved, method) -> None:
    first = train(method="online", learning_rate=0.5, **HOW, **MORE)
    if saved:
        first.save(tmp_path / "first.oso")
        first = load_private(tmp_path / "first.oso", model)
    again = train(method="online", learning_rate=0.5, **HOW, **MORE, resume_from=first, epsilon=9.0)
    unsaid = train(method=method, **MORE, resume_from=first, epsilon=9.0)
    assert kept(unsaid) == kept(again)
    for name, other in (("momentum", 0.8), ("schedule", "constant"), ("query_noise_ratio", 9.0)):
        said = train(method="online", **MORE, resume_from=first, epsilon=9.0, **{name: other})
        assert kept(said)["weights"] != kept(again)["weights"], name


def test_a_threshold_need_not_be_said_again(train) -> None:
    first = train(method="fixed_threshold", threshold=0.2, momentum=0.0, **MORE)
    unsaid = train(method=None, **MORE, resume_from=first, epsilon=9.0)
    assert unsaid.history.threshold == pytest.approx([0.2] * 8)


def test_what_goes_on_from_a_search_is_trained_as_its_best(search, train) -> None:
    """Not as the first point of the grid was, nor as is usual."""
    scores = iter([0.1, 0.9, 0.5])
    more = {"method": "online", "epochs": 3, "schedule": "linear", **SEEDED}
    grid = {"momentum": [0.9, 0.2, 0.5], "threshold_rate": [0.01]}
    best = search(grid, score=lambda model: next(scores), **more).best
    on = {"epochs": 3, "batch_size": 400, **SEEDED, "resume_from": best, "epsilon": 9.0}
    unsaid = train(method="online", **on)
    said = {"momentum": 0.2, "schedule": "linear", "threshold_rate": 0.01}
    assert kept(unsaid) == kept(train(method="online", **said, **on))
