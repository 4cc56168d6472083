"""A noisy mean over a data set of one number in [0, 1] per example: the score of a model.

The data are validation examples, not training examples. They are not sampled: each answer is a
Gaussian mechanism on all examples.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.privacy.sampling import PoissonSampling

_SENSITIVITY = 0.5  # of a sum of numbers in [-1/2, 1/2]; for numbers in [0, 1] it would be 1


class NoisyMean:
    """Noisy means over `examples` examples (a public number); its ledger has all answers."""

    def __init__(self, examples: int, noise_multiplier: float, randomness: RandomSource) -> None:
        if not noise_multiplier > 0:
            raise OsoError(f"noise_multiplier: {noise_multiplier}; must be > 0")
        self.examples, self.noise_multiplier = examples, noise_multiplier
        sampling = PoissonSampling(1.0)
        self.random_numbers = BatchRNG(randomness, sampling, examples, torch.device("cpu"))
        self.ledger = Ledger(sampling)
        self._released: set[str] = set()

    @property
    def std(self) -> float:
        """The standard deviation of the noise in an answer."""
        return _SENSITIVITY * self.noise_multiplier / self.examples

    def release(self, run_id: str, values_of: Callable[[], Tensor]) -> float:
        """The mean of `values_of()`, [n], with noise; once per run.

        Values are clipped to [0, 1]; NaN counts as 0. The noisy sum is rounded to float32, as in
        training.
        """
        if run_id in self._released:
            raise ValueError(f"run_id: {run_id}; was scored before, its noise must not be reused")
        self._released.add(run_id)
        self.ledger.record((SumQuery("score", self.noise_multiplier),))
        values = values_of().double()
        if values.shape != (self.examples,):
            raise OsoError(f"scores: shape {list(values.shape)}; must be [{self.examples}]")
        total = (values.nan_to_num(nan=0.0).clamp(0, 1) - 0.5).sum()
        purpose = f"noise/score/{self.noise_multiplier:.7g}"
        deviation = torch.tensor([self.noise_multiplier * _SENSITIVITY], dtype=torch.float64)
        noise = NoiseSpec(purpose, deviation)
        (noisy,) = self.random_numbers.add_noise([run_id], 1, [total.cpu().view(1)], [noise])
        # The low bits of a float64 would reveal which noise was possible.
        return float(noisy.float()) / self.examples + 0.5
