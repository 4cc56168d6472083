"""The unit of privacy, and texts of privacy statements."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Unit:
    """A unit of privacy: what a record is, of which a batch is drawn and neighbours differ by one.

    `text`: what is protected. `plural`: in counts, such as "539 users".
    """

    name: str
    text: str
    plural: str

    @property
    def neighbouring(self) -> str:
        """The neighbouring relation, in words."""
        return f"data sets that differ by one {self.name} added or removed"


EXAMPLE: Final = Unit("example", "one example: one row of the training data", "examples")
USER: Final = Unit("user", "one user: all rows of the training data with one id", "users")
UNITS: Final = {unit.name: unit for unit in (EXAMPLE, USER)}
RANDOMNESS: Final = {
    "system": "the operating system's cryptographic generator; cannot be repeated.",
    "seeded": "seeded: the seed reveals the noise. For public data only.",
}
