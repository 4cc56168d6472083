"""How long training takes on this machine, as far as it was measured in this campaign."""

from collections.abc import Mapping

from oso_dp.study.cohort import Cohort


class Speed:
    """Seconds per training step of a group, by data set, method and the group's size.

    A method that was not measured is taken to be as slow as the slowest one on the same data set.
    `planned`: the configuration's seconds per step and run, by data set. Where nothing is measured
    they tell what is cheaper; they never decide whether something ends in time.
    """

    def __init__(self, planned: Mapping[str, float]) -> None:
        self._planned = planned
        self._measured: dict[tuple[str, str], dict[int, float]] = {}

    @property
    def known(self) -> bool:
        return bool(self._measured)

    def note(self, cohort: Cohort, size: int, per_step: float) -> None:
        """`size` runs of this cohort, side by side, took `per_step` seconds a step.

        The last measurement of a size counts: the machine may be busier than it was.
        """
        self._measured.setdefault((cohort.dataset, cohort.method), {})[size] = per_step

    def group_seconds(self, cohort: Cohort, size: int) -> float | None:
        """Of a whole group; None if nothing was measured on its data set.

        From the measured size that is nearest, in proportion: whoever believes it for a smaller
        group watches the first steps.
        """
        sizes = self._alike(cohort)
        if not sizes:
            return None
        nearest = min(sizes, key=lambda measured: max(measured, size) / min(measured, size))
        return cohort.steps * sizes[nearest] * size / nearest

    def run_seconds(self, cohort: Cohort) -> float:
        """Of one run among many: as measured, or as planned in proportion to what was."""
        sizes = self._alike(cohort)
        if sizes:
            return cohort.steps * sizes[max(sizes)] / max(sizes)
        scales = [
            sizes[max(sizes)] / max(sizes) / self._planned[dataset]
            for (dataset, _), sizes in self._measured.items()
        ]
        scale = sum(scales) / len(scales) if scales else 1.0
        return cohort.steps * self._planned[cohort.dataset] * scale

    def _alike(self, cohort: Cohort) -> dict[int, float]:
        """Seconds per step by size: of the same method if measured, else of its data set."""
        by_size: dict[int, float] = dict(self._measured.get((cohort.dataset, cohort.method), {}))
        if not by_size:
            for (dataset, _), sizes in self._measured.items():
                if dataset == cohort.dataset:
                    by_size |= {size: max(sizes[size], by_size.get(size, 0.0)) for size in sizes}
        return by_size
