"""What each data set is, known before any of it is on disk.

The study needs the number of training examples n (sampling rate, steps, budget) to plan its
runs; `oso_dp.data.prepare` then holds the prepared arrays against this list. Nothing heavy is
imported here: building the workflow's graph reads this file.
"""

from dataclasses import dataclass

from oso_dp.errors import OsoError

DIMENSIONS = 50  # of a word's vector
OOV_WORDS = ("zeros", "skipped")  # what becomes of a word without a vector


@dataclass(frozen=True)
class DatasetInfo:
    """The public facts of one data set.

    `examples` is n, the number of training examples; `input_shape` is the shape of one example
    (channels first for images); `classes` is the number of different labels; `metric` is what an
    evaluation reports: `accuracy` of the labels, or `mse` per pixel of the input itself. Texts
    can be prepared with several numbers of `words`; the first is the default, and `input_shape`'s;
    and with the vectors of several `vocabularies`; the first is the default.
    A user's own data set (`oso_dp.data.plugins`) has a `version`, and it may not be public.
    """

    name: str
    title: str  # for people: tables, figures, the report
    examples: int
    test_examples: int
    input_shape: tuple[int, ...]
    metric: str
    classes: int
    words: tuple[int, ...] = ()
    vocabularies: tuple[str, ...] = ()
    version: str | None = None
    public: bool = True

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """All shapes in which an example can be prepared."""
        return [(words * DIMENSIONS,) for words in self.words] or [self.input_shape]


_ALL = (
    DatasetInfo(
        name="mnist",
        title="MNIST",
        examples=60_000,
        test_examples=10_000,
        input_shape=(1, 28, 28),
        metric="accuracy",
        classes=10,
    ),
    DatasetInfo(
        name="fashion_mnist",
        title="Fashion-MNIST",
        examples=60_000,
        test_examples=10_000,
        input_shape=(1, 28, 28),
        metric="mse",
        classes=10,
    ),
    DatasetInfo(
        name="ag_news",
        title="AG News",
        examples=120_000,
        test_examples=7_600,
        input_shape=(15 * DIMENSIONS,),
        metric="accuracy",
        classes=4,
        words=(15, 25),
        vocabularies=("complete", "subset"),
    ),
    DatasetInfo(
        name="ag_news_partial",
        title="AG News partial (n = 66,994)",
        examples=66_994,
        test_examples=7_600,
        input_shape=(15 * DIMENSIONS,),
        metric="accuracy",
        classes=4,
        words=(15, 25),
        vocabularies=("subset", "complete"),
    ),
    DatasetInfo(
        name="glyphs",
        title="Glyphs (rendered digits, not MNIST)",
        examples=6_000,
        test_examples=1_000,
        input_shape=(1, 14, 14),
        metric="accuracy",
        classes=10,
    ),
)

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _ALL}


def dataset_info(name: str) -> DatasetInfo:
    """Return the entry of one data set; OsoError names the allowed ones if there is none."""
    if name not in DATASETS:
        raise OsoError(f"unknown data set {name!r}; allowed: {', '.join(DATASETS)}")
    return DATASETS[name]
