"""The catalogue: each data set's public facts (sizes, shapes, metric), known before download.

Planning needs the number of training examples n (sampling rate, steps, budget); prepared arrays are
checked against this list. Imports nothing heavy, since the workflow reads it to build its graph.
"""

from dataclasses import dataclass
from typing import Any

from oso_dp.errors import OsoError

DIMENSIONS = 50  # of a word's vector
OOV_WORDS = ("zeros", "skipped")  # what replaces an out-of-vocabulary word


@dataclass(frozen=True)
class DatasetSpec:
    """The public facts of one data set.

    Attributes:
        name: Identifier.
        title: Display name for tables, figures and the report.
        examples: Number of training examples n.
        test_examples: Number of test examples.
        input_shape: Shape of one example, channels first for images.
        metric: "accuracy" of the labels, or "mse" per pixel of an autoencoder.
        classes: Number of labels.
        words: Texts only: allowed numbers of words; the first is the default.
        vocabularies: Texts only: allowed GloVe vocabularies; the first is the default.
        in_paper: Whether the paper has results on it.
        margin: Of equivalence, in the printed unit, or as a factor; None: no equivalence tests.
        margin_is_factor: Whether values are compared by their ratio.
        note: Shown wherever its results are.
        version: User-defined data sets only (`oso_dp.data.plugins`).
        public: Whether the data need no protection.
        users: Number of users to whom the training examples belong; None if they are unknown.
        builder: Module and function of `oso_dp.data` that prepares it; empty for user-defined ones.
    """

    name: str
    title: str
    examples: int
    test_examples: int
    input_shape: tuple[int, ...]
    metric: str
    classes: int
    words: tuple[int, ...] = ()
    vocabularies: tuple[str, ...] = ()
    in_paper: bool = False
    margin: float | None = None
    margin_is_factor: bool = False
    note: str = ""
    version: str | None = None
    public: bool = True
    users: int | None = None
    builder: str = ""

    def records(self, unit: str) -> int:
        """The number of training records of a unit of privacy, example or user.

        OsoError for users that are unknown.
        """
        if unit != "user":
            return self.examples
        if self.users is None:
            raise OsoError(f"unit: user; {self.name} does not say whose the examples are")
        return self.users

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """All possible shapes of one example."""
        return [(words * DIMENSIONS,) for words in self.words] or [self.input_shape]


# Margins, for accuracies: half of Online's printed gain over FixedThreshold, in the median over a
# data set's grids. Data sets without printed values take that of the similar one. Fashion-MNIST:
# as many of the paper's standard deviations as MNIST's margin, relative to the value, since values
# differ up to fiftyfold between budgets and standard deviations grow with them.
_DIGITS: dict[str, Any] = {  # MNIST, and what has its form
    **{"examples": 60_000, "test_examples": 10_000, "input_shape": (1, 28, 28)},
    **{"metric": "accuracy", "classes": 10, "margin": 1.3},
}
_ALL = (
    DatasetSpec(
        name="mnist",
        builder="mnist.build",
        title="MNIST",
        **_DIGITS,
        in_paper=True,
    ),
    DatasetSpec(
        name="mnist_writers",
        builder="mnist.build_writers",
        title="MNIST by writer",
        **_DIGITS,
        users=539,
    ),
    DatasetSpec(
        name="mnist_dealt",
        builder="mnist.build_dealt",
        title="MNIST, dealt to 6,000 users",
        **_DIGITS,
        users=6_000,
        note="Users are groups of ten examples that were dealt at random, not people.",
    ),
    DatasetSpec(
        name="fashion_mnist",
        builder="mnist.build_fashion",
        title="Fashion-MNIST",
        examples=60_000,
        test_examples=10_000,
        input_shape=(1, 28, 28),
        metric="mse",
        classes=10,
        in_paper=True,
        margin=1.2,
        margin_is_factor=True,
    ),
    DatasetSpec(
        name="fashion_mnist_labels",
        builder="mnist.build_fashion",
        title="Fashion-MNIST labels",
        **_DIGITS,
    ),
    DatasetSpec(
        name="ag_news",
        builder="ag_news.build",
        title="AG News",
        examples=120_000,
        test_examples=7_600,
        input_shape=(15 * DIMENSIONS,),
        metric="accuracy",
        classes=4,
        words=(15, 25),
        vocabularies=("complete", "subset"),
        in_paper=True,
        margin=0.4,
    ),
    DatasetSpec(
        name="ag_news_partial",
        builder="ag_news.build_partial",
        title="AG News subset (n = 66,994)",
        examples=66_994,
        test_examples=7_600,
        input_shape=(15 * DIMENSIONS,),
        metric="accuracy",
        classes=4,
        words=(15, 25),
        vocabularies=("subset", "complete"),
        margin=0.4,
        note=(
            "A subset of AG News' training examples, so results are not comparable with the "
            "paper's."
        ),
    ),
    DatasetSpec(
        name="glyphs",
        builder="synthetic_digits.build",
        title="Glyphs (rendered digits, not MNIST)",
        examples=6_000,
        test_examples=1_000,
        input_shape=(1, 14, 14),
        metric="accuracy",
        classes=10,
        margin=1.3,
        note=(
            "Glyphs are digits rendered from matplotlib's fonts. This is not MNIST, and results "
            "are not comparable with the paper's."
        ),
    ),
)

DATASETS: dict[str, DatasetSpec] = {info.name: info for info in _ALL}


def dataset_info(name: str) -> DatasetSpec:
    """Return the entry of one data set; OsoError if there is none."""
    if name not in DATASETS:
        raise OsoError(f"data set {name!r}: unknown; must be one of {', '.join(DATASETS)}")
    return DATASETS[name]
