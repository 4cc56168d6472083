"""Runs the audit of methods, with correct code and with planted faults."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Any

import torch

from oso_dp.audit.bounds import auditing, many_runs_bound, one_run_bounds
from oso_dp.audit.experiments import (
    DELTA,
    MANY_RUNS,
    ONE_RUN,
    StudyBackend,
    many_runs,
    one_run,
    query_kinds,
)
from oso_dp.audit.opacus_backend import OpacusBackend
from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, find_method

RUNS, FAULTY_RUNS = 2000, 150  # with the canary; the same number without it


@dataclass(frozen=True)
class Fault:
    """A fault that is planted into the running code, and that the audit must detect.

    `plant`: context manager during which the fault is present. `query`: the kind of query that it
    affects. `model`: the model of `oso_dp.audit.models` that it affects.
    """

    name: str
    description: str
    plant: Callable[[], AbstractContextManager[Any]]
    query: str = "clipped_gradient"
    model: str = "linear"


@dataclass(frozen=True)
class AuditFinding:
    """Claimed epsilons and lower bounds for one method, with a planted fault or without.

    All are epsilons at `delta`; each bound holds with 95 % confidence. Names begin with the
    experiment: one run with many canaries, or many runs with one canary and as many without.
    """

    method: str
    fault: str | None
    delta: float
    one_run_claimed: float
    one_run_bound: float
    one_run_gaussian_bound: float  # see `oso_dp.audit.bounds.one_run_bounds`
    many_runs_claimed: float
    many_runs_bound: float
    canaries: int
    one_run_steps: int
    runs: int
    many_runs_steps: int
    seconds: float
    mode: str = ""  # Opacus's grad_sample_mode; empty: not trained by the drop-in
    model: str = "linear"  # of `oso_dp.audit.models`

    @property
    def exceeded(self) -> bool:
        """Whether a bound exceeds the claimed epsilon of its experiment."""
        one_run = max(self.one_run_bound, self.one_run_gaussian_bound)
        return one_run > self.one_run_claimed or self.many_runs_bound > self.many_runs_claimed

    @property
    def as_expected(self) -> bool:
        """Whether correct code is not refuted, or a fault is detected."""
        return self.exceeded == (self.fault is not None)

    @property
    def verdict(self) -> str:
        if self.fault is None:
            return "REFUTED" if self.exceeded else "holds"
        return "seen" if self.exceeded else "NOT SEEN"


def private_methods() -> list[str]:
    """The methods audited by default: those of the paper that claim a guarantee."""
    return sorted(name for name in PAPER_METHODS if find_method(name).is_private)


def run_audit(
    methods: Iterable[str],
    faults: Iterable[Fault] = (),
    runs: int = RUNS,
    faulty_runs: int = FAULTY_RUNS,
    seed: int = 0,
    workers: int = 1,
    mode: str = "",
    model: str = "linear",
) -> Generator[AuditFinding, None, None]:
    """Audit each method with correct code, then with each fault that affects it.

    Args:
        methods: Names of methods.
        faults: Faults to plant.
        runs: Number of runs with the canary, and without it, for correct code.
        faulty_runs: The same for faulty code.
        seed: Seed of both experiments.
        workers: Number of processes; 1 means the current process.
        mode: grad_sample_mode of the Opacus drop-in. Default: the study's training code.
        model: The model that is trained, of `oso_dp.audit.models`.

    Yields:
        The findings, in order.

    Raises:
        OsoError: For an unknown method or one without a guarantee, or if jax_privacy is missing.
    """
    auditing()
    methods, faults = list(methods), list(faults)
    for method in methods:
        if not find_method(method).is_private:
            raise OsoError(
                f"audit: method {method!r} is not private; must be one of "
                f"{', '.join(private_methods())}"
            )
    jobs: list[tuple[str, Fault | None, int, int, str, str]] = []
    for method in methods:
        kinds = query_kinds(method)
        jobs.append((method, None, runs, seed, mode, model))
        jobs += [
            (method, fault, faulty_runs, seed, mode, model)
            for fault in faults
            if fault.query in kinds and fault.model == model
        ]
    if faults and all(fault is None for _, fault, *_ in jobs):
        raise OsoError(f"audit: no fault affects {', '.join(methods)} on the model {model!r}")
    if workers == 1:
        yield from (run_one_audit(*job) for job in jobs)
        return
    # Spawned, not forked: a fork of a process with threads may hang.
    before = {*active_children()}
    with ProcessPoolExecutor(
        min(workers, len(jobs)), get_context("spawn"), initializer=_start_worker
    ) as pool:
        try:
            yield from pool.map(run_one_audit, *zip(*jobs, strict=True))
        except BaseException:
            # Leaving the pool waits for its workers, which may run for minutes.
            for worker in {*active_children()} - before:
                worker.terminate()
            raise


def _start_worker() -> None:
    """Initialise a worker. It ignores Ctrl-C, since the main process terminates it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def run_one_audit(
    method: str,
    fault: Fault | None,
    runs: int,
    seed: int = 0,
    mode: str = "",
    model: str = "linear",
) -> AuditFinding:
    """Run both experiments on one method, with the fault planted."""
    began = time.perf_counter()
    train = OpacusBackend(mode) if mode else StudyBackend(model)
    with nullcontext() if fault is None else fault.plant():
        one, many = one_run(method, seed, train), many_runs(method, runs, seed, train)
    plain, gaussian = one_run_bounds(one.inside, one.outside, DELTA)
    return AuditFinding(
        method=method,
        fault=None if fault is None else fault.name,
        delta=DELTA,
        one_run_claimed=one.claimed,
        one_run_bound=plain,
        one_run_gaussian_bound=gaussian,
        many_runs_claimed=many.claimed,
        many_runs_bound=many_runs_bound(many.inside, many.outside, DELTA),
        canaries=len(one.inside[0].values) + len(one.outside[0].values),
        one_run_steps=ONE_RUN.steps,
        runs=runs,
        many_runs_steps=MANY_RUNS.steps,
        seconds=time.perf_counter() - began,
        mode=mode,
        model=model,
    )
