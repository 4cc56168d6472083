"""The audit of the drop-in for Opacus: below the claim in each mode, above it for each fault."""

from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from tests.audit.opacus_faults import FAULTS, SHARED_MULTIPLIER
from tests.opacus.helpers import MODES

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.audit import opacus_backend
from oso_dp.audit.bounds import many_runs_bound
from oso_dp.audit.canaries import lone_canary
from oso_dp.audit.experiments import DELTA, EPSILON
from oso_dp.audit.opacus_backend import OpacusBackend
from oso_dp.audit.run_audit import Fault, run_one_audit
from oso_dp.audit.scores import score_movement
from oso_dp.errors import OsoError

NU = 0.5  # where as few trials as here bound it best


def deviations_apart(mode: str, fault: Fault | None, steps: int = 400) -> float:
    """A lower bound on mu, with 95 % confidence, of one step: a Gaussian mechanism's 1 / nu.

    Everybody is in every batch, so that a training of many steps is as many trials. The best score
    is the likelihood ratio; the plain mean shows what it would drown.
    """
    seen = {}
    with nullcontext() if fault is None else fault.plant():
        for present in (True, False):
            canary, run = lone_canary(present, 1), f"{mode} {present}"
            seen[present] = OpacusBackend(mode)("online", 1, steps, NU, 1e-9, canary, [run])
    noise = seen[True].noise

    def scores(present: bool) -> list[np.ndarray]:
        answers = {name: values[:, 0] for name, values in seen[present].answers.items()}
        weights = [noise[name] ** -2 for name in answers]
        likelihood = np.average(list(answers.values()), axis=0, weights=weights)
        return [likelihood, np.mean(list(answers.values()), axis=0)]

    bounds = []
    inside, outside = scores(True), scores(False)
    share = 0.05 / 2 / len(inside)
    for within, without in zip(inside, outside, strict=True):
        true, false = int((within > 0.5).sum()), int((without > 0.5).sum())
        least = beta.ppf(share, true, steps - true + 1) if true else 0.0
        most = beta.ppf(1 - share, false + 1, steps - false) if false < steps else 1.0
        bounds.append(float(norm.ppf(least) - norm.ppf(most)))
    return max(bounds)


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[NIGHTLY] if mode != "ghost" else []) for mode in MODES]
)
def test_opacus_backend_bound_stays_below_claim(mode) -> None:
    assert 0.7 / NU < deviations_apart(mode, None) <= 1 / NU


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        pytest.param("hooks", FAULTS["no_gradient_noise"], marks=NIGHTLY),
        pytest.param("functorch", FAULTS["no_direction_noise"], marks=NIGHTLY),
        pytest.param("ghost", FAULTS["no_direction_noise"], marks=NIGHTLY),
        ("ghost", SHARED_MULTIPLIER),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_opacus_backend_insufficient_noise_detected(mode, fault) -> None:
    assert deviations_apart(mode, fault) > 1 / NU


@pytest.mark.nightly
@pytest.mark.usefixtures("library")
def test_opacus_backend_unsanitized_threshold_detected() -> None:
    def bound(fault: Fault | None) -> tuple[float, float]:
        moves = {}
        with nullcontext() if fault is None else fault.plant():
            for present in (True, False):
                canary, runs = lone_canary(present, 1), [f"{present} {run}" for run in range(60)]
                seen = OpacusBackend("ghost")("online", 1, 3, 4.0, 1e-9, canary, runs)
                moves[present] = [score_movement(seen.moves)]
        claimed = compute_epsilon([seen.ledger], DELTA)
        return claimed, many_runs_bound(moves[True], moves[False], DELTA)

    claimed, found = bound(None)
    assert found <= claimed
    claimed, found = bound(FAULTS["threshold_of_norms"])
    assert found > claimed


@pytest.mark.usefixtures("library")
def test_run_one_audit_ghost_mode_holds() -> None:
    finding = run_one_audit("online", None, runs=5, mode="ghost")
    assert finding.one_run_claimed == pytest.approx(EPSILON, rel=1e-3)
    assert finding.many_runs_claimed == pytest.approx(EPSILON, rel=1e-3)
    assert 0.2 < finding.one_run_gaussian_bound < EPSILON  # not vacuous
    assert (finding.verdict, finding.mode) == ("holds", "ghost")


def test_opacus_backend_unsupported_method_raises() -> None:
    with pytest.raises(
        OsoError, match="method 'adam_wosm' has no Opacus engine; must be one of online"
    ):
        OpacusBackend("ghost")("adam_wosm", 1, 1, 1.0, 1.0, lone_canary(True, 1), ["a"])


def test_opacus_backend_run_seeds_differ(monkeypatch) -> None:
    seeds: list[int] = []

    class EnoughError(Exception):
        pass

    def seeded(name: str) -> None:
        seeds.append(torch.initial_seed())
        raise EnoughError

    monkeypatch.setattr(opacus_backend, "build_model", seeded)
    canary = lone_canary(True, 1)
    for name in (f"audit/online/0/{i % 2 == 0}/{i // 2}" for i in range(2000)):
        with suppress(EnoughError):
            OpacusBackend("ghost")("online", 1, 1, 1.0, 1.0, canary, [name])
    assert len(set(seeds)) == len(seeds) == 2000
