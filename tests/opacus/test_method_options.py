"""Whatever constant of its method somebody gives the drop-in, the method has it."""

import pytest
import torch
from tests.opacus.helpers import QUIET, Recorded, examples, make

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]
GIVEN = {
    "online": {"threshold_rate": 0.03, "learning_rate_rate": 0.07, "query_noise_ratio": 3.0},
    "fixed_quantile": {"quantile_rate": 0.9, "count_noise": 0.4},
    "auto_s": {"stabiliser": 0.6},
}


@pytest.mark.parametrize("method", GIVEN)
def test_each_constant_is_the_one_that_was_given(method: str) -> None:
    driver = make(method, **GIVEN[method]).optimizer.driver
    for name, value in GIVEN[method].items():
        assert getattr(driver.method.options, name) == value
    assert driver.threshold == 0.5


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.75, 0.99])
def test_c_follows_the_quantile_that_was_given(quantile: float) -> None:
    """With a batch of nobody, half of the expected one counts as unclipped."""
    more = {"quantile_rate": 0.3, "count_noise": 0.3, "quantile": quantile}
    made = make("fixed_quantile", noise=Recorded(), **more)
    for _ in range(3):
        before = made.optimizer.max_grad_norm
        made.step(*examples(count=0))
        moved = torch.tensor(made.optimizer.max_grad_norm / before).log().item()
        assert moved == pytest.approx(-0.3 * (0.5 - quantile), rel=1e-3, abs=1e-5)


def test_where_no_quantile_is_said_c_follows_the_median() -> None:
    assert float(make("fixed_quantile", count_noise=0.3).optimizer.driver.state.quantile) == 0.5
