"""Options of the training that each user does in a step, where one user is the unit of privacy."""

from dataclasses import dataclass

from oso_dp.errors import OsoError


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
        for name in ("epochs", "batch_size", "rows_per_user"):
            value = getattr(self, name)
            is_all = value is None and name != "epochs"
            if not is_all and (type(value) is not int or value < 1):
                raise OsoError(f"local.{name}: {value!r}; must be an integer >= 1")
        rate = self.learning_rate
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not (is_number and 0 < rate < float("inf")):
            raise OsoError(f"local.learning_rate: {rate!r}; must be a number > 0")

    @property
    def is_one_step(self) -> bool:
        """Whether a user takes one step on all of their rows (FedSGD)."""
        return self.epochs == 1 and self.batch_size is None

    def __str__(self) -> str:
        rows = "" if self.rows_per_user is None else f" the first {self.rows_per_user}"
        if self.is_one_step:
            scale = "" if self.learning_rate == 1 else f", times {self.learning_rate:g}"
            return f"the mean gradient of{rows or ' all'} of their rows{scale} (FedSGD)"
        epochs = f"{self.epochs} epoch{'s' * (self.epochs > 1)}"
        size = "all rows" if self.batch_size is None else f"{self.batch_size} rows"
        return (
            f"the change of the parameters by {epochs} of SGD on{rows or ' all'} of their rows, in "
            f"batches of {size}, at learning rate {self.learning_rate:g} (FedAvg)"
        )
