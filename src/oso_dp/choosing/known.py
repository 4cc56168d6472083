"""What was measured of the ways to spend one budget: `measured.csv`, which `make report` writes."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

FILE = files("oso_dp.choosing") / "measured.csv"


@dataclass(frozen=True)
class Measured:
    """One way at one budget on one data set; a line of the file. Values are in the printed unit."""

    dataset: str
    examples: int  # n
    parameters: int  # P
    epsilon: float
    selection: str  # composition, random_stopping, linear_scaling, default
    way: str  # the same in words
    method: str
    laid: str  # over the method's steps, in words
    distribution: str  # of the number of runs, under random stopping
    trial_shares: str  # of epsilon, under linear scaling; numbers with commas
    start: str  # from where, of a default
    chosen: str  # by whom
    seen: bool  # the default was chosen by this very data set
    runs: int  # that the budget pays for
    metric: str  # its label
    mean: float
    std: float
    seeds: int
    reference: bool  # whether it is Online's searched grid itself
    gain: float  # above that; positive is better
    gain_half: float  # half of its 95 % interval
    margin: float  # a difference that matters on this data set

    @property
    def name(self) -> str:
        """The method, what is laid over its steps, and how often a search draws."""
        drawn = f"K {self.distribution}" if self.distribution else ""
        return ", ".join(word for word in (self.method, self.laid, drawn) if word)


COLUMNS = [one.name for one in fields(Measured)]
_OF: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: text == "True",
    "str": str,
}


@cache
def measured() -> tuple[Measured, ...]:
    """All lines of the file."""
    types = {one.name: _OF[getattr(one.type, "__name__", "")] for one in fields(Measured)}
    lines = csv.DictReader(FILE.read_text(encoding="utf-8").splitlines())
    return tuple(
        Measured(**{name: read(line[name]) for name, read in types.items()}) for line in lines
    )
