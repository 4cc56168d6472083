"""HyFreeDP's rule on given answers: where a parabola's least value is, and what the losses cost."""

import pytest
import torch
from tests.methods.test_methods import P, R, make, state

from oso_dp.errors import OsoError
from oso_dp.privacy.clipped_losses import ClippedLosses
from oso_dp.privacy.noise_split import combined_noise_multiplier
from oso_dp.privacy.queries import AutomaticGradient


def answers(here: float, forth: float, back: float) -> dict:
    losses = torch.tensor([[here, forth, back]]).expand(R, 3)
    return {AutomaticGradient: torch.ones(R, P), ClippedLosses: losses}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_on_a_parabola_it_steps_to_the_least_value(momentum: float) -> None:
    """L(theta) = 3 + |theta - 2|^2 / 2 along each axis; whatever the rate is, one step arrives."""
    method, mine = make("hyfreedp", momentum), state()
    gradient = torch.full((R, P), -2.0)
    points = method.probes(mine, {AutomaticGradient: gradient})
    losses = 3 + (points - 2).square().sum(dim=2) / 2
    assert points.shape == (R, 3, P)
    assert torch.equal(points[:, 0], mine.parameters)
    method.update(mine, {AutomaticGradient: gradient, ClippedLosses: losses})
    torch.testing.assert_close(mine.learning_rate, torch.ones(R))
    torch.testing.assert_close(mine.parameters, torch.full((R, P), 2.0))


def test_probes_lie_a_step_forth_and_back_along_the_momentum() -> None:
    method, mine = make("hyfreedp", 0.9), state()
    mine.memory["velocity"] = torch.full((R, P), 10.0)
    gradient = torch.ones(R, P)
    here, forth, back = method.probes(mine, {AutomaticGradient: gradient}).unbind(dim=1)
    step = mine.learning_rate[:, None] * 10.0
    torch.testing.assert_close(forth, here - step)
    torch.testing.assert_close(back, here + step)
    assert torch.equal(mine.memory["velocity"], torch.full((R, P), 10.0))  # looked at, not moved
    before = mine.parameters.clone()
    method.update(mine, {AutomaticGradient: gradient, **answers_without_a_fit()})
    torch.testing.assert_close(mine.parameters, before - step)


def answers_without_a_fit() -> dict:
    return {ClippedLosses: torch.ones(R, 3)}


@pytest.mark.parametrize(
    ("losses", "factor"),
    [
        ((1.0, 0.5, 2.0), 1.5),  # slope .75 and curvature .5, in units of the rate
        ((1.0, 0.5, 1.5 + 2**-10), 512.5),  # hardly bent, and then nearly level: any factor
        ((1.0, 1.5 - 2**-10, 1.5 + 2**-10), 2**-10),
        ((1.0, 0.5, 1.2), 1.0),  # bends the other way
        ((1.0, 2.0, 1.5), 1.0),  # goes up
        ((1.0, 1.0, 1.0), 1.0),
    ],
)
def test_a_rate_moves_only_where_there_is_a_least_value(losses, factor) -> None:
    method, mine = make("hyfreedp"), state()
    before = mine.learning_rate.clone()
    method.update(mine, answers(*losses))
    torch.testing.assert_close(mine.learning_rate, factor * before)


@pytest.mark.parametrize("stabiliser", [1e-6, 0.01, 0.5, 1e6])
@pytest.mark.parametrize("every", [1, 3])
def test_gradients_are_stabilised_alike_with_losses_and_without(every, stabiliser) -> None:
    method, mine = make("hyfreedp", stabiliser=stabiliser, every=every), state()
    asked = []
    for mine.step in range(1, 8):
        gradient, *losses = method.queries(mine)
        asked.append(len(losses))
        assert gradient.stabiliser == stabiliser
    assert asked == [int(step % every == 0) for step in range(7)]


def test_the_bound_is_the_sum_of_the_last_losses_and_never_below_zero() -> None:
    method, mine = make("hyfreedp", initial_bound=2.0), state()
    assert method.queries(mine)[1].bound.tolist() == [2.0] * R
    method.update(mine, answers(1.0, 0.5, 1.5))
    assert method.queries(mine)[1].bound.tolist() == [3.0] * R
    method.update(mine, answers(-1.0, 0.5, 0.2))  # noise
    assert method.queries(mine)[1].bound.tolist() == [3.0] * R


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 250.0, 1e6, 1e12])
def test_the_bound_is_as_large_as_the_losses_are(scale: float) -> None:
    """A sum over an image's pixels is thousands; held to less, it would tell nothing."""
    method, mine = make("hyfreedp"), state()
    losses = (1.0 * scale, 0.5 * scale, 2.0 * scale)
    for _ in range(3):
        method.update(mine, answers(*losses))
        assert method.queries(mine)[1].bound.tolist() == pytest.approx([3.5 * scale] * R)


def test_each_run_has_the_rate_and_the_bound_of_its_own_losses() -> None:
    """One that bends the other way, or is noise below zero, leaves those beside it alone."""
    losses = torch.tensor([[1.0, 0.5, 2.0], [1.0, 2.0, 1.5], [-1.0, 0.2, 0.1]])
    method, together = make("hyfreedp"), state()
    gradient = torch.ones(R, P)
    method.update(together, {AutomaticGradient: gradient, ClippedLosses: losses})
    bounds = method.queries(together)[1].bound
    for run in range(R):
        alone = state()
        own = losses[run].expand(R, 3)
        method.update(alone, {AutomaticGradient: gradient, ClippedLosses: own})
        assert together.learning_rate[run] == alone.learning_rate[run]
        assert bounds[run] == method.queries(alone)[1].bound[run]
    assert bounds.tolist() == pytest.approx([3.5, 4.5, 1.0])


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("gamma", [1.01, 1.05])
def test_losses_cost_what_gamma_says_over_all_steps(every: int, gamma: float) -> None:
    """Each step costs nu; together the losses take 1 - gamma^-2 of a step from each."""
    method, mine = make("hyfreedp", every=every, gradient_noise=gamma), state(0.8)
    spent, asking = 0.0, []
    for mine.step in range(1, 3001):
        queries = method.queries(mine)
        nus = [query.noise_multiplier for query in queries]
        assert combined_noise_multiplier(nus) == pytest.approx(0.8, rel=1e-9)
        if len(queries) > 1:
            asking.append(mine.step)
            assert type(queries[1]) is ClippedLosses
            assert queries[1].points == 3
            spent += nus[1] ** -2
        assert (method.probes(mine, answers(1, 1, 1)) is None) == (len(queries) == 1)
    assert asking == list(range(1, 3001, every))
    assert spent == pytest.approx(3000 * 0.8**-2 * (1 - gamma**-2), rel=1e-9)


@pytest.mark.parametrize(("every", "gamma"), [(51, 1.01), (1e6, 1.01), (2, 3.0)])
def test_losses_that_would_take_a_whole_step_are_refused(every: float, gamma: float) -> None:
    with pytest.raises(OsoError, match=r"hyfreedp: every .* at gradient_noise .*: the losses"):
        make("hyfreedp", every=every, gradient_noise=gamma).split_noise(1.0, 100)


@pytest.mark.parametrize("every", [1.5, 2.5, 7.999])
def test_losses_are_asked_for_each_so_many_whole_steps(every: float) -> None:
    """Else they would be asked for more often than they are paid for."""
    with pytest.raises(OsoError, match=f"hyfreedp: every {every}: must be a whole number"):
        make("hyfreedp", every=every).queries(state(0.8))


def test_nothing_is_searched_and_the_start_is_the_papers() -> None:
    method = make("hyfreedp")
    assert method.search == ()
    assert method.starting_point({}) == {"learning_rate": 1e-4, "threshold": 1.0}
