"""What was released counts: no earlier state takes steps out of an optimizer's ledger."""

import io
from collections.abc import Callable

import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, Made, examples, make, network, parameters_of

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
TOLD = "this optimizer has released 3 steps, the state 2; released steps count towards epsilon"


def trained(steps: int, mode: str = "hooks") -> Made:
    made = make(mode=mode)
    for _ in range(steps):
        made.step(*examples(count=7))
    return made


def saved(made: Made) -> io.BytesIO:
    file = io.BytesIO()
    made.engine.save_checkpoint(path=file, module=made.model, optimizer=made.optimizer)
    file.seek(0)
    return file


def load(made: Made, file: io.BytesIO) -> None:
    made.engine.load_checkpoint(path=file, module=made.model, optimizer=made.optimizer)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", ["optimizer", "engine"])
def test_an_earlier_state_is_refused_and_changes_nothing(by: str, mode: str) -> None:
    made = trained(2, mode)
    state, file = made.optimizer.state_dict(), saved(made)
    made.step(*examples(count=7))
    before = parameters_of(made.optimizer)
    kept = made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor
    run: dict[str, Callable[[], None]] = {
        "optimizer": lambda: made.optimizer.load_state_dict(state),
        "engine": lambda: load(made, file),
    }
    with pytest.raises(OsoError, match=TOLD) as raised:
        run[by]()
    assert "\n" not in str(raised.value)
    assert torch.equal(before, parameters_of(made.optimizer))
    assert kept == (made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor)
    assert made.optimizer.ledger.step_count == 3
    assert made.engine.accountant.history == [(1.0, 0.1, 3)]


@pytest.mark.parametrize("there", [1, 3])
def test_a_state_of_another_run_takes_no_steps_out_either(there: int) -> None:
    first, second = trained(3), trained(there)
    before = parameters_of(second.optimizer)
    with pytest.raises(
        OsoError, match=f"has released {there} steps, the state of another run 3; re"
    ):
        load(second, saved(first))
    assert torch.equal(before, parameters_of(second.optimizer))
    assert second.optimizer.ledger.step_count == there
    assert second.engine.accountant.history == [(1.0, 0.1, there)]


def test_what_was_released_after_a_state_was_loaded_counts_too() -> None:
    first, second = trained(3), trained(0)
    load(second, saved(first))
    second.step(*examples(count=7))
    first.step(*examples(count=7))
    with pytest.raises(OsoError, match="has released 4 steps, the state of another run 4; re"):
        load(second, saved(first))


def test_a_new_optimizer_goes_on_from_any_state_until_it_takes_a_step() -> None:
    first, second = trained(3), trained(0)
    load(second, saved(trained(2)))
    file = saved(first)
    for _ in range(2):  # the same state again
        load(second, file)
        file.seek(0)
        assert second.optimizer.ledger == first.optimizer.ledger
        assert second.engine.accountant.history == first.engine.accountant.history
        assert torch.equal(parameters_of(first.optimizer), parameters_of(second.optimizer))
        second.optimizer.load_state_dict(second.optimizer.state_dict())


def test_a_checkpoint_in_a_file_is_read_by_its_path(tmp_path) -> None:
    first, second = trained(3), trained(0)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(saved(first).getvalue())
    second.engine.load_checkpoint(path=path, module=second.model, optimizer=second.optimizer)
    assert second.optimizer.ledger.step_count == 3
    with pytest.warns(UserWarning, match="optimizer is not provided"):
        second.engine.load_checkpoint(path=path, module=second.model)


def test_a_state_that_was_refused_leaves_the_momentum() -> None:
    def begun(steps: int) -> Made:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        made = make(model=model, optimizer=optimizer)
        for _ in range(steps):
            made.step(*examples(count=7))
        return made

    def momenta(made: Made) -> torch.Tensor:
        state = made.optimizer.original_optimizer.state
        return torch.cat([state[p]["momentum_buffer"].flatten() for p in made.optimizer.params])

    made, other = begun(3), begun(5)
    content, before = other.optimizer.state_dict(), momenta(made).clone()
    content["oso_dp"]["run"] = made.optimizer.state_dict()["oso_dp"]["run"]
    content["oso_dp"].pop("threshold")
    with pytest.raises(OsoError, match="cannot be read"):
        made.optimizer.load_state_dict(content)
    assert torch.equal(momenta(made), before)
