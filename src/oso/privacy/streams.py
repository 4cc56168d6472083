"""Random streams that depend on nothing but a run's identity, a purpose and the step.

Philox is counter-based: the key says whose stream it is (128 bits of SHA-256, so that two runs
never share one) and the counter's highest word holds the step, so that each step has 2^192 blocks
of its own. Nothing has to be saved to resume, and a result does not depend on which runs share a
device.

torch.Generator is not used on the CPU on purpose: its Mersenne twister keeps only 32 bits of the
seed, and a study that draws tens of millions of streams would use many of them twice.

Seeded noise is reproducible and, for whoever knows the identity, not private.
"""

import hashlib

import numpy as np


def stream(run_id: str, purpose: str, step: int) -> np.random.Generator:
    """The generator of one run, for sampling or for the noise of one query, at one step."""
    digest = hashlib.sha256(f"{run_id}\x00{purpose}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))
