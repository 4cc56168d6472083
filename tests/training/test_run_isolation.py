"""A run comes out the same to the bit, whichever runs share its job."""

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays
from oso_dp.methods import method_names
from oso_dp.training.loop import train


@pytest.mark.parametrize("name", method_names())
def test_the_usual_company_changes_no_bit(name, make_task, make_run) -> None:
    """Of runs whose batches need different widths: what a shared job stores comes out alone."""
    random = np.random.default_rng(0)
    words = (random.random((640, 750)) < 0.05).astype(np.float32)
    classes = random.integers(4, size=640)
    arrays = Arrays(words[:600], classes[:600], words[600:], classes[600:])
    starts = [make_run(f"r{i}", i, 0.2 + 0.05 * i, 0.3 + i % 2) for i in range(5)]
    task = make_task(name, model="bag_of_words", batch_size=192, steps=8)
    together = train(task, starts, arrays)
    for start, one in zip(starts, together, strict=True):
        (other,) = train(task, [start], arrays)
        assert one.evaluations == other.evaluations != []
        assert one.ledger == other.ledger
