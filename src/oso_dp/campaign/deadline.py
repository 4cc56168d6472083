"""Whether a group's last step comes in time, from the speed of its steps so far."""

from collections.abc import Callable

from oso_dp.errors import Interrupted

SETTLED = 1.0  # seconds of steps before their speed is believed, at the least
PATIENCE = 0.02  # of the time that is left: who is busy for a minute may be free soon
SLACK = 1.05  # an estimate may be short by so much


class OutOfTimeError(Interrupted):
    """A group cannot end before the deadline."""


class Deadline:
    """Told of each step: measures the speed, and stops what cannot end in time.

    The first call starts the clock, so that what a first step takes in addition does not count.
    """

    def __init__(self, steps: int, deadline: float, clock: Callable[[], float]) -> None:
        self.steps, self.deadline, self.clock = steps, deadline, clock
        self.first: tuple[int, float] | None = None
        self.settled = SETTLED
        self.step = 0
        self.per_step: float | None = None

    def __call__(self, done: int, step: int) -> None:
        """OutOfTimeError once it is plain that the last step comes too late."""
        now = self.clock()
        self.step = step
        if self.first is None:
            self.first = step, now
            self.settled = max(SETTLED, PATIENCE * (self.deadline - now))
        elif step > self.first[0]:
            self.per_step = (now - self.first[1]) / (step - self.first[0])
        if step >= self.steps:
            return
        settled = self.per_step is not None and now - self.first[1] >= self.settled
        ahead = (self.per_step or 0.0) * (self.steps - step) if settled else 0.0
        if now + ahead / SLACK > self.deadline:
            raise OutOfTimeError
