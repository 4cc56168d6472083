"""Options of the training that each user does in a step, where one user is the unit of privacy."""

from dataclasses import dataclass

from oso_dp.value_checks import check_integer, check_number

MAX_EPOCHS, MAX_ROWS, MAX_RATE = 1000, 10**9, 1e6


@dataclass(frozen=True)
class LocalTraining:
    """What a user computes in a step: the change of the parameters by SGD on their own rows.

    Attributes:
        epochs: passes over the user's rows.
        batch_size: rows of a local step; None: all, one step for each epoch.
        learning_rate: of the local steps.
        rows_per_user: rows of a user that are used at most, the first ones; None: all.

    The default is FedSGD: one step on all rows, at rate 1. So the change is the mean gradient.

    Raises:
        OsoError: for a value that is not allowed.
    """

    epochs: int = 1
    batch_size: int | None = None
    learning_rate: float = 1.0
    rows_per_user: int | None = None

    def __post_init__(self) -> None:
        for name, most in (
            ("epochs", MAX_EPOCHS),
            ("batch_size", MAX_ROWS),
            ("rows_per_user", MAX_ROWS),
        ):
            value = getattr(self, name)
            if value is not None or name == "epochs":
                check_integer(f"local.{name}", value, ge=1, le=most)
        check_number("local.learning_rate", self.learning_rate, gt=0, le=MAX_RATE)

    @property
    def is_one_step(self) -> bool:
        """Whether a user takes one step on all of their rows (FedSGD)."""
        return self.epochs == 1 and self.batch_size is None

    def __str__(self) -> str:
        rows = "" if self.rows_per_user is None else f" the first {self.rows_per_user}"
        if self.is_one_step:
            scale = "" if self.learning_rate == 1 else f", times {self.learning_rate!r}"
            return f"the mean gradient of{rows or ' all'} of their rows{scale} (FedSGD)"
        epochs = f"{self.epochs} epoch{'s' * (self.epochs > 1)}"
        size = "all rows" if self.batch_size is None else f"{self.batch_size} rows"
        return (
            f"the change of the parameters by {epochs} of SGD on{rows or ' all'} of their rows, in "
            f"batches of {size}, at learning rate {self.learning_rate!r} (FedAvg)"
        )
