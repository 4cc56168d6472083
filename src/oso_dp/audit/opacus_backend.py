"""Trains the audit's runs with the Opacus drop-in: Opacus's loader and hooks.

A run's id seeds the generators of its batches and its noise.
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
from oso_dp.audit.scores import Transcript
from oso_dp.errors import OsoError
from oso_dp.gradients.random_numbers import seeded
from oso_dp.models import build_model

if TYPE_CHECKING:
    from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
    from oso_dp.privacy.queries import Answers


def make_engines() -> dict[str, Any]:
    """The drop-in's engines by method name."""
    from oso_dp.opacus import AutoSPrivacyEngine, FixedQuantilePrivacyEngine, OnlinePrivacyEngine

    engines = (OnlinePrivacyEngine, FixedQuantilePrivacyEngine, AutoSPrivacyEngine)
    return {engine.method_name: engine for engine in engines}


def check_mode(mode: str) -> None:
    """OsoError if the drop-in has no such grad_sample_mode."""
    from oso_dp.opacus.model_hooks import MODES

    if mode not in MODES:
        raise OsoError(f"--opacus: {mode!r}; must be one of {', '.join(MODES)}")


@dataclass(frozen=True)
class OpacusBackend:
    """A `Train` of `oso_dp.audit.experiments` for one grad_sample_mode."""

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
        """Train the runs one by one. OsoError for a method without an engine."""
        if name not in (engines := make_engines()):
            raise OsoError(
                f"audit: method {name!r} has no Opacus engine; must be one of {', '.join(engines)}"
            )
        runs = [
            self._train(engines[name], batch_size, steps, noise_multiplier, rate, canaries, run_id)
            for run_id in run_ids
        ]
        first = runs[0]
        return Transcript(
            {
                query: np.concatenate([run.answers[query] for run in runs], axis=1)
                for query in first.answers
            },
            first.noise,
            np.concatenate([run.moves for run in runs]),
            first.ledger,
        )

    def _train(
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
        with seeded(zlib.crc32(run_id.encode())), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Opacus's, about noise that is not cryptographic
            batches, noise = (
                torch.Generator().manual_seed(seed) for seed in torch.randint(2**62, (2,)).tolist()
            )
            module = build_model("linear")
            private = engine(accountant="rdp").make_private(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9),
                criterion=nn.CrossEntropyLoss(),
                data_loader=DataLoader(data, batch_size=batch_size, generator=batches),
                noise_multiplier=noise_multiplier,
                max_grad_norm=THRESHOLD,
                noise_generator=noise,
                grad_sample_mode=self.mode,
            )
            model, optimizer, loader = private[0], private[1], private[-1]
            criterion = private[2] if len(private) == 4 else nn.CrossEntropyLoss()
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
        return observer.transcript(optimizer.ledger)


def observe_optimizer(optimizer: AdaptiveDPOptimizer, columns: slice) -> Observer:
    """An observer of each step's answers, called before the method's update."""
    driver = optimizer.driver
    observer, adapt = Observer(driver.method, columns), driver.adapt_hyperparameters

    def observe_and_adapt(answers: Answers) -> None:
        observer(driver.state, answers)
        adapt(answers)

    driver.adapt_hyperparameters = observe_and_adapt  # type: ignore[method-assign]
    return observer
