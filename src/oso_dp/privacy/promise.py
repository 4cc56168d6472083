"""Texts of privacy statements: the protected unit, the neighbouring relation, the randomness."""

from typing import Final

UNIT: Final = "one example: one row of the training data"
NEIGHBOURING: Final = "data sets that differ by one example added or removed"
RANDOMNESS: Final = {
    "system": "the operating system's cryptographic generator; cannot be repeated.",
    "seeded": "seeded: the seed reveals the noise. For public data only.",
}
