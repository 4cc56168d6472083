"""Words that every statement of a guarantee shares: what is protected, and how noise is drawn."""

from typing import Final

UNIT: Final = "one example: one row of the training data"
NEIGHBOURING: Final = "data sets that differ by one example added or removed"
RANDOMNESS: Final = {
    "system": "the operating system's cryptographic generator; nobody can repeat it.",
    "seeded": "seeded: whoever knows the seed knows the noise. For public data only.",
}
