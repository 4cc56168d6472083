"""Two gloo workers: the test's own process, and this file as a program: FOLDER.

A second process is what takes the time: it imports everything once more.
"""

import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 5, 9
# Wrapper, mode, method, whether pieces of batches are tried.
CASES = {
    "DPDDP hooks": ("DPDDP", "hooks", "online", True),
    "DPDDP functorch": ("DPDDP", "functorch", "online", True),
    "DPDDP ghost": ("DPDDP", "ghost", "online", True),
    "DPDDP quantile": ("DPDDP", "hooks", "fixed_quantile", False),
    "DDP hooks": ("DDP", "hooks", "online", False),
    "DDP functorch": ("DDP", "functorch", "online", False),
    "DDP ghost": ("DDP", "ghost", "fixed_quantile", False),
}

NOISY = ["DPDDP hooks", "DPDDP quantile", "DDP functorch", "DDP ghost"]


def batches(rank: int | None) -> list[tuple[Tensor, Tensor]]:
    """The same batches for all; of each, a worker has its part, once none, and one has all."""
    from tests.opacus.helpers import examples

    inputs, targets = examples(double=True)
    parts = []
    for step in range(STEPS):
        rows = list(range(step * BATCH, (step + 1) * BATCH))
        cut = BATCH if step == 2 else 4
        rows = rows if rank is None else rows[:cut] if rank == 0 else rows[cut:]
        parts.append((inputs[rows], targets[rows]))
    return parts


def run(name: str, rank: int | None, noisy: bool) -> dict[str, Any]:
    """Train; `rank` None: alone, without the wrapper."""
    from opacus import distributed as private
    from tests.opacus.helpers import Recorded, make, network, parameters_of

    wrapper, mode, method, pieces = CASES[name]
    model: Any = network(double=True)
    if rank is not None:
        model = (
            private.DifferentiallyPrivateDistributedDataParallel(model)
            if wrapper == "DPDDP"
            else DistributedDataParallel(model)
        )
    more = {"count_noise": 0.3} if method == "fixed_quantile" else {}
    torch.manual_seed(10 + (rank or 0))  # noise that is drawn in two places would differ
    noise = None if noisy else Recorded()
    made = make(method, mode, model, noise=noise, **more)
    for inputs, targets in batches(rank):
        if pieces and rank is not None and len(inputs) > 2:
            made.optimizer.signal_skip_step(do_skip=True)
            made.step(inputs[:2], targets[:2])
            made.optimizer.signal_skip_step(do_skip=False)
            inputs, targets = inputs[2:], targets[2:]
        made.step(inputs, targets)
    return {
        "parameters": parameters_of(made.optimizer),
        "state": [made.optimizer.max_grad_norm, made.optimizer.learning_rate_factor],
        "batch_size": made.optimizer.batch_size,
        "draws": None if noisy else len(made.optimizer.noise.calls),
        "history": made.engine.accountant.history,
    }


def refusal(name: str) -> str:
    """What is said of pieces of a batch where the workers reduce in the backward pass."""
    from tests.opacus.helpers import make, network

    made = make(model=DistributedDataParallel(network()))
    try:
        made.optimizer.signal_skip_step(do_skip=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def work(rank: int, folder: Path) -> dict[str, Any]:
    """What this worker ended with, by case and whether there was noise."""
    patience = timedelta(seconds=300)
    meeting = f"file://{folder}/meet"
    distributed.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=patience
    )
    try:
        ended = {
            (name, noisy): run(name, rank, noisy)
            for name in CASES
            for noisy in (False, True)
            if not noisy or name in NOISY
        }
        worker = {"ended": ended, "refusal": refusal("DDP")}
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
    return worker


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.save(work(1, Path(sys.argv[1])), Path(sys.argv[1]) / "1.pt")
