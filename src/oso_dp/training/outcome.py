"""What comes out of one run."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """What came out of one run."""

    run_id: str
    status: str = "running"  # then finished or diverged
    diverged_at: int | None = None
    ledger: str = ""
    wall_seconds: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)
