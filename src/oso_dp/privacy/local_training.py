"""Options of the training that each user does in a step, where one user is the unit of privacy."""

from dataclasses import dataclass

from oso_dp.errors import OsoError

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
            is_all = value is None and name != "epochs"
            if not is_all and (type(value) is not int or not 1 <= value <= most):
                raise OsoError(f"local.{name}: {value!r}; must be an integer >= 1 and <= {most}")
        rate = self.learning_rate
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not (is_number and 0 < rate <= MAX_RATE):
            raise OsoError(
                f"local.learning_rate: {rate!r}; must be a number > 0 and <= {MAX_RATE:g}"
            )

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
