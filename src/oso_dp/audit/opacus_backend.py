"""The experiments' training as a script with `oso_dp.opacus` does it: Opacus's loader and hooks.

Which batches and which noise a run has follows from its identity, by generators of its own.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from oso_dp.audit.canaries import THRESHOLD, Canaries
from oso_dp.audit.observer import Observer
from oso_dp.audit.transcript import Transcript
from oso_dp.errors import OsoError
from oso_dp.models import build_model

if TYPE_CHECKING:
    from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
    from oso_dp.privacy.queries import Answers


def make_engines() -> dict[str, Any]:
    """The drop-in's engines by their methods' names."""
    from oso_dp.opacus import AutoSPrivacyEngine, FixedQuantilePrivacyEngine, OnlinePrivacyEngine

    engines_by_name = (OnlinePrivacyEngine, FixedQuantilePrivacyEngine, AutoSPrivacyEngine)
    return {engine.method_name: engine for engine in engines_by_name}


def check_mode(mode: str) -> None:
    """OsoError if the drop-in has no such grad_sample_mode."""
    from oso_dp.opacus.model_hooks import MODES

    if mode not in MODES:
        raise OsoError(f"--opacus {mode!r}: not possible; allowed are {', '.join(MODES)}")


@dataclass(frozen=True)
class OpacusBackend:
    """A `train` of `oso_dp.audit.experiments`, in this grad_sample_mode."""

    mode: str

    def __call__(
        self,
        name: str,
        batch_size: int,
        steps: int,
        noise_multiplier: float,
        rate: float,
        canaries: Canaries,
        run_ids: Sequence[str],
    ) -> Transcript:
        """One run after the other. OsoError for a method that the drop-in does not have."""
        if name not in (known := make_engines()):
            raise OsoError(f"audit: {name} has no engine for Opacus; try {', '.join(known)}")
        engines_by_name = [
            self._one(known[name], batch_size, steps, noise_multiplier, rate, canaries, run_id)
            for run_id in run_ids
        ]
        first = engines_by_name[0]
        return Transcript(
            {
                query: np.concatenate([one.answers[query] for one in engines_by_name], axis=1)
                for query in first.answers
            },
            first.noise,
            np.concatenate([one.moves for one in engines_by_name]),
            first.ledger,
        )

    def _one(
        self,
        engine: Any,
        batch_size: int,
        steps: int,
        noise_multiplier: float,
        rate: float,
        canaries: Canaries,
        run_id: str,
    ) -> Transcript:
        arrays = canaries.arrays
        inputs = torch.from_numpy(arrays.train_inputs)
        data = TensorDataset(inputs, torch.from_numpy(arrays.train_targets))
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Opacus, on noise that is not cryptographic
            torch.manual_seed(zlib.crc32(run_id.encode()))
            batches, noise = (
                torch.Generator().manual_seed(seed) for seed in torch.randint(2**62, (2,)).tolist()
            )
            module = build_model("linear")
            made = engine(accountant="rdp").make_private(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9),
                criterion=nn.CrossEntropyLoss(),
                data_loader=DataLoader(data, batch_size=batch_size, generator=batches),
                noise_multiplier=noise_multiplier,
                max_grad_norm=THRESHOLD,
                noise_generator=noise,
                grad_sample_mode=self.mode,
            )
            model, optimizer, loader = made[0], made[1], made[-1]
            criterion = made[2] if len(made) == 4 else nn.CrossEntropyLoss()
            observer = observe_optimizer(optimizer, canaries.columns)
            taken = 0
            while taken < steps:
                for batch, targets in loader:
                    optimizer.zero_grad()
                    criterion(model(batch), targets).backward()
                    optimizer.step()
                    taken += 1
                    if taken == steps:
                        break
        return observer.transcripts(optimizer.ledger)


def observe_optimizer(optimizer: AdaptiveDPOptimizer, columns: slice) -> Observer:
    """An auditor that sees each step's answers, before the method learns from them."""
    driver = optimizer.driver
    observer, learn = Observer(driver.method, columns), driver.learn

    def shown(answers: Answers) -> None:
        observer(driver.state, answers)
        learn(answers)

    driver.learn = shown  # type: ignore[method-assign]
    return observer
