"""A noisy mean over a whole data set, of one number in [0, 1] per example: a score of a model.

The data are those that chose between models, not those that trained them. Nothing is sampled: each
answer is a Gaussian mechanism of its own, on every example.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.privacy.sampling import PoissonSampling

_SENSITIVITY = 0.5  # of a sum of numbers in [-1/2, 1/2]; of ones in [0, 1] it would be 1


class NoisyMean:
    """Of `examples` examples, a number that counts as public; its ledger holds every answer."""

    def __init__(self, examples: int, noise_multiplier: float, randomness: RandomSource) -> None:
        if not noise_multiplier > 0:
            raise OsoError(f"noise multiplier {noise_multiplier}: must be above 0")
        self.examples, self.noise_multiplier = examples, noise_multiplier
        self.randomness = randomness
        self.ledger = Ledger(PoissonSampling(1.0))
        self._asked: set[str] = set()

    @property
    def std(self) -> float:
        """The noise's standard deviation in an answer."""
        return _SENSITIVITY * self.noise_multiplier / self.examples

    def release(self, run_id: str, values_of: Callable[[], Tensor]) -> float:
        """The mean of `values_of()`, [n], with noise; once for each run.

        A value outside of [0, 1] counts as the nearer end, one that is no number as 0. The noised
        sum is rounded to float32, as those of trainings are.
        """
        if run_id in self._asked:
            raise ValueError(f"run {run_id} was scored before: its noise must not be used twice")
        self._asked.add(run_id)
        self.ledger.record((SumQuery("score", self.noise_multiplier),))
        values = values_of().double()
        if values.shape != (self.examples,):
            raise OsoError(f"scores: {list(values.shape)} of {self.examples} examples")
        total = (values.nan_to_num(nan=0.0).clamp(0, 1) - 0.5).sum()
        purpose = f"noise/score/{self.noise_multiplier:.7g}"
        noise = torch.from_numpy(self.randomness.normals([run_id], purpose, 1, (1,)))[0, 0]
        # The last digits of a float64 would show which noise was possible.
        noisy = (total.cpu() + noise * self.noise_multiplier * _SENSITIVITY).float()
        return float(noisy) / self.examples + 0.5
