"""The prepared files that a campaign's runs are trained from, each read once."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from oso_dp.campaign.order import Work
from oso_dp.data.arrays import Arrays
from oso_dp.data.prepared import load_prepared
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort


class DataFiles:
    """Those of some work, in a folder."""

    def __init__(self, folder: Path, everything: Sequence[Work]) -> None:
        self.folder = folder
        self._users: dict[str, Cohort] = {work.cohort.data_file: work.cohort for work in everything}
        self._loaded: dict[str, Arrays] = {}

    @cached_property
    def missing(self) -> set[str]:
        """Names of the files that were not there when it was first asked."""
        return {name for name in self._users if not (self.folder / name).exists()}

    def only_there(self, everything: list[Work], say: Callable[[str], None]) -> list[Work]:
        """The work whose data are there, with a line about the rest; all of it if none are."""
        if not self.missing < self._users.keys():
            return everything
        for name in sorted(self.missing):
            dataset = self._users[name].dataset
            say(f"{self.folder / name}: no such file, so {dataset} is left out")
        return [work for work in everything if work.cohort.data_file not in self.missing]

    def refuse_missing(self, needed: Iterable[str], instead: str) -> None:
        """OsoError for a needed file that is not there: how it is made, and what to do instead."""
        for name in {*needed} & self.missing:
            user = self._users[name]
            make = " ".join(["oso data", user.dataset, *user.data_options])
            raise OsoError(
                f"{self.folder / name}: no such file; `{make} --output ...` makes it{instead}"
            )

    def load(self, name: str) -> Arrays:
        """What the file holds, checked against the data set that its runs name."""
        if name not in self._loaded:
            user = self._users[name]
            self._loaded[name] = load_prepared(self.folder / name, user.dataset, user.preparation)
        return self._loaded[name]
