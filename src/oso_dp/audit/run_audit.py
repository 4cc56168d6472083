"""The audit of methods, with right code and with each fault: what was claimed, what was found."""

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
    many_runs,
    one_run,
    queries_of_method,
)
from oso_dp.audit.opacus_backend import OpacusBackend
from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, find_method

RUNS, FAULTY_RUNS = 2000, 150  # with the canary, and as many without


@dataclass(frozen=True)
class Fault:
    """Something wrong that is planted into the running code: the audit must see it.

    `plant`: while its context lasts, the fault is there. `query`: the kind of query in which it
    shows.
    """

    name: str
    description: str
    plant: Callable[[], AbstractContextManager[Any]]
    query: str = "clipped_gradient"


@dataclass(frozen=True)
class AuditFinding:
    """One method with one fault or none: what its ledgers claim, and what must be at least.

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
    mode: str = ""  # Opacus's grad_sample_mode, where the drop-in trained

    @property
    def exceeded(self) -> bool:
        """Whether a bound is above what the ledger of its experiment claims."""
        one_run = max(self.one_run_bound, self.one_run_gaussian_bound)
        return one_run > self.one_run_claimed or self.many_runs_bound > self.many_runs_claimed

    @property
    def as_expected(self) -> bool:
        """Right code is not refuted, a fault is seen."""
        return self.exceeded == (self.fault is not None)

    @property
    def verdict(self) -> str:
        if self.fault is None:
            return "REFUTED" if self.exceeded else "holds"
        return "seen" if self.exceeded else "NOT SEEN"


def private_methods() -> list[str]:
    """What is audited unless others are named: the paper's methods that claim a guarantee."""
    return sorted(name for name in PAPER_METHODS if find_method(name).is_private)


def run_audit(
    methods: Iterable[str],
    faults: Iterable[Fault] = (),
    runs: int = RUNS,
    faulty_runs: int = FAULTY_RUNS,
    seed: int = 0,
    workers: int = 1,
    mode: str = "",
) -> Generator[AuditFinding, None, None]:
    """Each method with right code, then with each fault that concerns it, as they are found.

    With more than one worker, in processes of their own. `mode`: through the drop-in for Opacus in
    that mode. OsoError for a method without a guarantee or that is not known, and if jax_privacy is
    not there.
    """
    auditing()
    methods, faults = list(methods), list(faults)
    for method in methods:
        if not find_method(method).is_private:
            raise OsoError(f"audit: {method} claims no privacy; try {', '.join(private_methods())}")
    jobs: list[tuple[str, Fault | None, int, int, str]] = []
    for method in methods:
        asked = queries_of_method(method)
        jobs.append((method, None, runs, seed, mode))
        jobs += [
            (method, fault, faulty_runs, seed, mode) for fault in faults if fault.query in asked
        ]
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
            # A pool that is left waits for its workers, and these for the end of minutes of work.
            for worker in {*active_children()} - before:
                worker.terminate()
            raise


def _start_worker() -> None:
    """In each worker. Ctrl-C reaches all of a terminal's processes: who leads ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def run_one_audit(
    method: str, fault: Fault | None, runs: int, seed: int = 0, mode: str = ""
) -> AuditFinding:
    """Both experiments on one method, while the fault is planted."""
    began = time.perf_counter()
    train = OpacusBackend(mode) if mode else None
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
    )
