"""Conversion of a user's training data to `Examples`: arrays, tables, data sets and loaders."""

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from oso_dp.api.data_loader import (
    Collate,
    Fetcher,
    LoaderOptions,
    Request,
    read_loader,
    refuse_stream,
)
from oso_dp.api.tensors import (
    find_labels,
    is_structured,
    is_table,
    name_parts,
    number_type,
    restructure,
    split_labels,
    to_tensor,
)
from oso_dp.errors import OsoError
from oso_dp.gradients.structured import Structure, map_tensors, tensors_of
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.training.task import Examples, TensorExamples, split_rows

MAX_EXAMPLES_CHECKED = 100  # of a data set, before training
_MAX_WIDENED = 6  # tensors of an example, of which all combinations are tried


@contextmanager
def open_examples(
    data: Any, device: torch.device, argument: str = "data", is_public: bool = False
) -> Iterator[Examples]:
    """The examples of `make_examples`; at the end of the block, their worker processes end."""
    examples = make_examples(data, device, argument, is_public)
    try:
        yield examples
    finally:
        if isinstance(examples, DatasetExamples):
            examples.fetch.close()


def make_examples(
    data: Any, device: torch.device, argument: str = "data", is_public: bool = False
) -> Examples:
    """(inputs [n, ...], targets [n, ...]), or a data set of such pairs, or its DataLoader.

    Floating-point numbers become float32, integers int64, when a batch is fetched. Raises OsoError
    for data that cannot be trained on; of a data set that is not a TensorDataset, only the first
    example is checked until `widen` has chosen its types. `argument`: the name of the caller's
    argument, for messages. `is_public`: whether the data need no protection.
    """
    options = LoaderOptions()
    is_loaded = isinstance(data, DataLoader)
    if isinstance(data, DataLoader):
        data, options = read_loader(data, argument)
    if type(data) is TensorDataset and options.collate_fn is None:
        data, is_loaded = data.tensors, False
    if isinstance(data, IterableDataset):
        refuse_stream(argument)
    if is_table(data):
        raise OsoError(
            f"{argument}: {type(data).__name__}; must be (inputs, targets): the columns of the "
            "inputs, and the column of the targets"
        )
    if not is_loaded and _is_list_of_lists(data):
        raise OsoError(
            f"{argument}: a list of [input, target] lists; give tuples (input, target), or two "
            "arrays"
        )
    if not is_loaded and isinstance(data, tuple | list) and not _is_list_of_pairs(data):
        if len(data) != 2:
            raise OsoError(f"{argument}: {len(data)} elements; must be (inputs, targets)")
        inputs, targets = data
        return _tensor_examples(inputs, targets, device, argument)
    is_mapping = isinstance(data, Mapping) and not is_loaded
    if is_mapping and find_labels(data):
        return _tensor_examples(*split_labels(data), device, argument)
    if not is_mapping and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        try:
            size = len(data)
        except Exception as error:  # a data set without a length may raise any exception
            line = " ".join(str(error).split())
            raise OsoError(f"{argument}: has no length ({type(error).__name__}: {line})") from error
        if size == 0:
            raise OsoError(f"{argument}: has no examples; must have at least one")
        check_no_repeats(data, argument)
        return DatasetExamples(data, device, argument, options, is_public)
    raise OsoError(
        f"{argument}: {type(data).__name__}; must be (inputs, targets) or a map-style data set "
        "with a length"
    )


def _is_list_of_lists(data: Any) -> bool:
    """Rows [input, target]: of two it is not known which are the inputs."""
    if not isinstance(data, list) or len(data) <= 2:
        return False
    return all(isinstance(one, list) and len(one) == 2 for one in data)


def _tensor_examples(
    inputs: Any, targets: Any, device: torch.device, argument: str
) -> TensorExamples:
    if isinstance(targets, tuple) and any(getattr(one, "ndim", 0) for one in targets):
        raise OsoError(
            f"{argument}: targets are a tuple; must be one array: stack the columns, and let the "
            "loss take them apart"
        )
    several = is_structured(inputs)
    parts = name_parts(inputs) | {"targets": targets}
    tensors, types = [], []
    for name, values in parts.items():
        tensor = to_tensor(argument, name, values)
        if tensor.dim() == 0 or len(tensor) == 0:
            raise OsoError(f"{argument}: has no {name}; must have at least one row")
        dtype = number_type(tensor.dtype, several and name != "targets")
        types.append(tensor.new_empty(0, *tensor.shape[1:], dtype=dtype, device=device))
        # A file that is mapped to memory stays one: only the rows of a batch go to the device.
        tensors.append(tensor if isinstance(values, np.memmap) else _to_device(tensor, device))
    count = len(tensors[-1])
    for name, values in zip(parts, tensors, strict=True):
        if len(values) != count:
            raise OsoError(
                f"{argument}: {len(values)} {name} and {count} targets; must be equally many"
            )
        if values.is_floating_point() and not _are_finite(values):
            raise OsoError(f"{argument}: {name} contain NaN or infinity; must be finite")
    *of_inputs, of_targets = tensors
    *input_types, target_type = types
    return TensorExamples(
        restructure(inputs, of_inputs), of_targets, (restructure(inputs, input_types), target_type)
    )


def _are_finite(values: Tensor) -> bool:
    """Whether all are finite in float32."""
    return all(bool(chunk.isfinite().all()) for chunk in split_rows(values, torch.float32))


# Of other devices than the CPU: types that need less memory, or that have more operations.
_DEVICE_TYPES = {
    torch.float64: torch.float32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}


def _to_device(values: Tensor, device: torch.device) -> Tensor:
    dtype = _DEVICE_TYPES.get(values.dtype, values.dtype)
    if values.device.type == device.type or dtype == values.dtype:
        return values.to(device)
    moved = torch.empty(values.shape, dtype=dtype, device=device)
    for into, chunk in zip(split_rows(moved, dtype), split_rows(values, dtype), strict=True):
        into.copy_(chunk)
    return moved


def _is_list_of_pairs(data: Any) -> bool:
    """A list of three or more pairs, or of dictionaries with labels, is a data set; two elements
    are inputs and targets."""
    if not isinstance(data, list) or len(data) <= 2:
        return False
    return all(
        (isinstance(example, tuple) and len(example) == 2)
        or (isinstance(example, Mapping) and find_labels(example) is not None)
        for example in data
    )


@dataclass(frozen=True)
class _RowType:
    """Shape [1, ...] and dtype of an example's tensor; public."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class _DatasetReader:
    """Reads examples of a map-style data set, each for itself, to the CPU."""

    dataset: Any
    argument: str
    collate_fn: Collate | None

    def read(self, indices: Sequence[int], types: Any) -> Structure:
        """Inputs, targets and which examples are absent, one row per index.

        types: a `_RowType` for each tensor of input and target. Without: the first index's input
            and target as they are.
        """
        if types is None:
            return self._pair(indices[0])
        rows = [self._example(index, types) for index in indices]
        return tree_map(lambda *parts: torch.cat(parts), rows[0], *rows[1:])

    def _example(self, index: int, types: Any) -> tuple[Structure, Tensor, Tensor]:
        """Input, target, is absent. An absent example is zero: no model or loss sees its values."""
        try:
            given = self._pair(index)
        except OsoError:  # not numbers; exceptions of the data set itself propagate
            return _absent(types)
        (found, form), (wanted, wanted_form) = tree_flatten(given), tree_flatten(types)
        if form != wanted_form:
            raise OsoError(f"{self._differ}; all must have one structure and one shape")
        named = name_parts(given[0]) | {"targets": given[1]}
        for name, one, like in zip(named, found, wanted, strict=True):
            if one.shape != like.shape:
                raise OsoError(
                    f"{self._differ}: {name} {list(like.shape[1:])} and {list(one.shape[1:])}; all "
                    "must have one shape: pad to a fixed length in the data set or in collate_fn, "
                    'as tokenizer(padding="max_length") does'
                )
        converted = [_convert(one, like.dtype) for one, like in zip(found, wanted, strict=True)]
        if any(one is None for one in converted):
            return _absent(types)
        return *tree_unflatten(converted, form), torch.tensor([False])

    @property
    def _differ(self) -> str:
        return f"{self.argument}: examples of different shapes"

    def _pair(self, index: int) -> tuple[Structure, Tensor]:
        """The input and the target of an example, [1, ...] each."""
        example = self.dataset[index]
        if self.collate_fn is not None:
            # Alone: padding to the longest of a batch would make it depend on other examples.
            example = self.collate_fn([example])
        if isinstance(example, Mapping) and find_labels(example):
            example = split_labels(example)
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise OsoError(
                f"{self.argument}: example of type {type(example).__name__}; must be a pair "
                "(input, target), or a dictionary with labels"
            )
        inputs, targets = example
        several = is_structured(inputs)
        parts = name_parts(inputs) | {"targets": targets}
        *of_inputs, of_targets = (
            self._row(name, values, several and name != "targets") for name, values in parts.items()
        )
        return restructure(inputs, of_inputs), of_targets

    def _row(self, name: str, values: Any, keeps_bool: bool) -> Tensor:
        tensor = to_tensor(self.argument, name, values)
        tensor = tensor.to(number_type(tensor.dtype, keeps_bool))
        return tensor[None] if self.collate_fn is None else tensor


def _absent(types: Any) -> tuple[Structure, Tensor, Tensor]:
    inputs, targets = tree_map(lambda one: torch.zeros(one.shape, dtype=one.dtype), types)
    return inputs, targets, torch.tensor([True])


def _distinct(indices: Sequence[int]) -> list[int]:
    """Padding repeats an index."""
    return list(dict.fromkeys(indices))


class DatasetExamples:
    """Examples of a map-style data set, (input, target) each, fetched when a batch contains them.

    Their dtypes are those of the first example, so that no example decides for others; `widen` may
    replace integer dtypes by float32. An example with values of other types or with values that are
    not finite counts as absent: an error there would reveal it. Another shape raises OsoError;
    shapes are public.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        device: torch.device,
        argument: str = "data",
        options: LoaderOptions | None = None,
        is_public: bool = False,
    ) -> None:
        self.dataset: Any = dataset
        self.device, self.argument = device, argument
        options = options or LoaderOptions()
        # Worker processes fetch the first example, too: a file that it opens would be shared.
        reader = _DatasetReader(dataset, argument, options.collate_fn)
        self.fetch = Fetcher(reader, options, is_public)
        try:
            self.empty_batch = self._first_types()
        except BaseException:
            self.fetch.close()
            raise

    def _first_types(self) -> tuple[Structure, Tensor]:
        """The input and the target of the first example as 0 examples."""
        try:
            ((first, error),) = self.fetch([([0], None)])
        except Exception as failure:  # of the start of a process, such as its worker_init_fn
            last_line = str(failure).strip().rpartition("\n")[-1]
            raise OsoError(
                f"{self.argument}: no example from worker processes ({last_line})"
            ) from failure
        if isinstance(error, OsoError):
            raise error
        if error is not None:
            line = " ".join(str(error).split())
            name = type(error).__name__
            raise OsoError(
                f"{self.argument}: has no example at index 0 ({name}: {line})"
            ) from error
        for name, one in (name_parts(first[0]) | {"targets": first[1]}).items():
            if one.shape[:1] != (1,):
                raise OsoError(
                    f"{self.argument}: collate_fn returns {name} {list(one.shape)} for one "
                    "example; must be [1, ...]"
                )
        inputs, targets = map_tensors(lambda one: one[:0].to(self.device), first)
        return inputs, targets

    def with_types(self, dtypes: Sequence[torch.dtype]) -> "DatasetExamples":
        """The same examples with these dtypes of the inputs' tensors and of the targets."""
        inputs, targets = self.empty_batch
        *of_inputs, of_targets = (
            tensor.to(dtype)
            for tensor, dtype in zip((*tensors_of(inputs), targets), dtypes, strict=True)
        )
        converted = copy.copy(self)
        converted.empty_batch = restructure(inputs, of_inputs), of_targets
        return converted

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor) -> tuple[Structure, Tensor, Tensor | None]:
        runs, size = indices.shape
        if size == 0:
            inputs, targets = map_tensors(
                lambda one: one.new_empty(runs, 0, *one.shape[1:]), self.empty_batch
            )
            return inputs, targets, None
        flat = self._fetch(indices.flatten().tolist())
        inputs, targets, absent = map_tensors(lambda one: one.unflatten(0, (runs, size)), flat)
        return inputs, targets, absent

    def empty(self) -> tuple[Structure, Tensor]:
        inputs, targets = self.empty_batch
        return inputs, targets

    def prefetch(self, indices: Tensor) -> None:
        """Let worker processes fetch the next batch."""
        if indices.numel():
            self.fetch.prefetch(self._requests(_distinct(indices.flatten().tolist())))

    def _requests(self, distinct: Sequence[int]) -> list[Request]:
        types = self._row_types()
        return [(part, types) for part in self.fetch.split(distinct)]

    def _fetch(self, indices: Sequence[int]) -> Structure:
        """Inputs, targets and which examples are absent, one row per index."""
        distinct, parts = _distinct(indices), []
        for part, error in self.fetch(self._requests(distinct)):
            if error is not None:
                raise error
            parts.append(part)
        row_of = {index: row for row, index in enumerate(distinct)}
        rows = torch.tensor([row_of[index] for index in indices])
        is_repeated = len(distinct) < len(indices)

        def join(*values: Tensor) -> Tensor:
            joined = torch.cat(values) if len(values) > 1 else values[0]
            return (joined[rows] if is_repeated else joined).to(self.device)

        return tree_map(join, parts[0], *parts[1:])

    def _row_types(self) -> Structure:
        return tree_map(
            lambda one: _RowType(torch.Size([1, *one.shape[1:]]), one.dtype), self.empty()
        )

    def check_usable(self) -> None:
        """OsoError if the first examples have different shapes, or if more than half are absent.

        Few would be trained on. Tensors and arrays are refused for a single value that is not
        finite, since all are present.
        """
        checked = absent = 0
        types = self._row_types()
        first = range(min(MAX_EXAMPLES_CHECKED, len(self)))
        for example, error in self.fetch([([index], types) for index in first]):
            if isinstance(error, OsoError):
                raise error
            if error is not None:  # of the data set; raised when a batch contains the example
                continue
            checked += 1
            absent += bool(example[-1])
        if 2 * absent > checked:
            raise OsoError(
                f"{self.argument}: more than half of the first {checked} examples contain NaN, "
                "infinity or no numbers, and would be left out; correct them"
            )


def widen(
    examples: Examples, values: Callable[[Structure, Tensor], Tensor], checks_rows: bool = True
) -> Examples:
    """Replace integer inputs or targets of a data set by float32 where that changes no value.

    A first target of 1 is a floating-point number to a squared error (others may be 0.5), and a
    class to cross entropy. No example may decide which it is, so `values` does, a function of three
    made-up examples on the CPU. A dtype becomes float32 if `values` accepts floating-point numbers
    there, negative ones included, and returns the same for integers of either dtype, also for
    integers that float32 cannot represent. With `checks_rows`, raises OsoError if more than half of
    the first examples are unusable with the chosen dtypes.
    """
    if not isinstance(examples, DatasetExamples):
        return examples
    widened = _widen(examples, values)
    if checks_rows:
        widened.check_usable()
    return widened


def _widen(
    examples: DatasetExamples, values: Callable[[Structure, Tensor], Tensor]
) -> DatasetExamples:
    inputs, targets = examples.empty()
    empty = [tensor.cpu() for tensor in (*tensors_of(inputs), targets)]
    dtypes = [tensor.dtype for tensor in empty]
    kept = [dtype.is_floating_point or dtype == torch.bool for dtype in dtypes]
    if kept.count(False) > _MAX_WIDENED:
        return examples
    choices = [
        [dtype] if keep else [torch.float32, dtype]
        for dtype, keep in zip(dtypes, kept, strict=True)
    ]

    def evaluate(
        types: Sequence[torch.dtype], index: int, numbers: Sequence[float]
    ) -> Tensor | None:
        """`values` with these numbers as this tensor; 0 and 1 as the others."""
        batch = [
            torch.tensor(numbers if position == index else (0, 1, 1))
            .view(-1, *[1] * (tensor.dim() - 1))
            .expand(3, *tensor.shape[1:])
            .to(dtype)
            for position, (tensor, dtype) in enumerate(zip(empty, types, strict=True))
        ]
        try:
            with torch.no_grad():
                return values(restructure(inputs, batch[:-1]), batch[-1])
        except Exception:  # a model or a loss may raise any exception for another dtype
            return None

    def is_equivalent(types: Sequence[torch.dtype], index: int) -> bool:
        accepts_floats = evaluate(types, index, (-1.3, 0.4, 2.1)) is not None
        for numbers in ((0, 1, 1), (0, 1, 2**24 + 1)):
            floats, integers = evaluate(types, index, numbers), evaluate(dtypes, index, numbers)
            if integers is not None and (floats is None or not torch.equal(floats, integers)):
                return False
        return accepts_floats

    for types in itertools.product(*choices):
        changed = [index for index, dtype in enumerate(dtypes) if types[index] != dtype]
        if all(is_equivalent(types, index) for index in changed):
            return examples.with_types(types)
    return examples


def format_types(examples: Examples) -> str:
    """The examples' dtypes and shapes, for a statement; public."""
    inputs, targets = examples.empty()
    types = (
        f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape[1:])}"
        for name, tensor in (name_parts(inputs) | {"targets": targets}).items()
    )
    left_out = ""
    if isinstance(examples, DatasetExamples):
        left_out = (
            "; an example of the data set with values that are not finite, or not of these types, "
            "adds nothing to any step"
        )
    return f"{', '.join(types)}{left_out}"


def _convert(values: Tensor, dtype: torch.dtype) -> Tensor | None:
    """A copy of this dtype, since a data set may reuse one buffer; None if it cannot be converted:
    values that are not finite or, for integers, not integral or too large for float64."""
    if values.is_floating_point() and not values.isfinite().all():
        return None
    if values.is_floating_point() and not dtype.is_floating_point:
        integral = (values == values.round()) & (values.abs() < 2**53)
        if not integral.all():
            return None
    return values.to("cpu", dtype, copy=True)


_DIGESTED = 64  # examples


def digest(examples: Examples) -> str:
    """A hash of some examples and their order, by which processes find that their data differ."""
    places = torch.linspace(0, len(examples) - 1, min(_DIGESTED, len(examples))).long()
    inputs, targets, _ = examples.batch(places[None])
    found = hashlib.blake2b(digest_size=16)
    for values in (*tensors_of(inputs), targets):
        found.update(values.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
