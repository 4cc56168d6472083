"""A user's training data as the loop takes it: tensors, arrays, or a map-style data set."""

import copy
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from oso_dp.errors import OsoError
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.training.task import Examples, TensorExamples


def make_examples(data: Any, device: torch.device, argument: str = "data") -> Examples:
    """(inputs [n, ...], targets [n, ...]) as tensors or arrays, or a data set of such pairs.

    Decimal numbers become float32, whole ones int64. OsoError, in one line, for data that cannot be
    trained on; of a data set that is no TensorDataset only the first example is looked at,
    until `widened` has settled its types.
    argument: what the caller calls the data.
    """
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, IterableDataset):
        raise OsoError(f"{argument}: an IterableDataset cannot be sampled; give one with an index")
    if isinstance(data, tuple | list) and not _of_pairs(data):
        if len(data) != 2:
            raise OsoError(f"{argument}: must be inputs and targets, not {len(data)} things")
        inputs, targets = (
            _numbers(argument, name, values) for name, values in zip(_NAMES, data, strict=True)
        )
        if len(inputs) != len(targets):
            raise OsoError(f"{argument}: {len(inputs)} inputs and {len(targets)} targets")
        for name, values in zip(_NAMES, (inputs, targets), strict=True):
            if values.is_floating_point() and not values.isfinite().all():
                raise OsoError(
                    f"{argument}: {name} hold values that are not finite (NaN or infinite)"
                )
        return TensorExamples(inputs.to(device), targets.to(device))
    no_mapping = not isinstance(data, Mapping)
    if no_mapping and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        try:
            size = len(data)
        except Exception as error:  # whatever a data set may do that has no length of its own
            line = " ".join(str(error).split())
            raise OsoError(f"{argument}: has no length ({type(error).__name__}: {line})") from error
        if size == 0:
            raise OsoError(f"{argument}: there are no examples")
        check_no_repeats(data, argument)
        return DatasetExamples(data, device, argument)
    instead = "; give its data set, of which batches are drawn here" * isinstance(data, DataLoader)
    raise OsoError(
        f"{argument}: must be (inputs, targets) or a data set with a length and an index, not "
        f"{type(data).__name__}{instead}"
    )


def _of_pairs(data: Any) -> bool:
    """A list of pairs is a data set; two of anything are taken for inputs and targets."""
    pairs = isinstance(data, list) and len(data) > 2
    return pairs and all(isinstance(one, tuple) and len(one) == 2 for one in data)


_NAMES = ("inputs", "targets")
LOOKED_AT = 100  # examples of a data set


class DatasetExamples:
    """Examples that are fetched when a batch has them; each a pair of an input and a target.

    Their types are those of the first one, so that none decides for others; `widened` makes decimal
    ones of whole ones. One that has no numbers of these types, or some that are not finite, counts
    as absent: to stop there would tell of it. Another shape ends the training; shapes are public.
    """

    def __init__(self, dataset: Dataset[Any], device: torch.device, argument: str = "data") -> None:
        self.dataset: Any = dataset
        self.device, self.argument = device, argument
        try:
            self.empty_batch = tuple(part[None][:0].to(device) for part in self._pair(0))
        except OsoError:
            raise
        except Exception as error:  # whatever a data set may do, or what only looks like one
            line = " ".join(str(error).split())
            name = type(error).__name__
            raise OsoError(f"{argument}: gives no example at index 0 ({name}: {line})") from error

    def with_types(self, inputs: torch.dtype, targets: torch.dtype) -> "DatasetExamples":
        """The same examples with numbers of these types."""
        other = copy.copy(self)
        pairs = zip(self.empty_batch, (inputs, targets), strict=True)
        other.empty_batch = tuple(part.to(dtype) for part, dtype in pairs)
        return other

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        runs, size = indices.shape
        if size == 0:
            inputs, targets = (
                part.new_empty(runs, 0, *part.shape[1:]) for part in self.empty_batch
            )
            return inputs, targets, None
        flat = self._fetch(indices.flatten().tolist())
        inputs, targets, absent = (part.unflatten(0, (runs, size)) for part in flat)
        return inputs, targets, absent

    def empty(self) -> tuple[Tensor, Tensor]:
        inputs, targets = self.empty_batch
        return inputs, targets

    def _fetch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and which are absent, one of each per index."""
        known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # what pads a batch is fetched once
        for index in indices:
            if index not in known:
                known[index] = self._usable(index)
        inputs, targets, absent = (
            torch.stack(parts).to(self.device)
            for parts in zip(*(known[index] for index in indices), strict=True)
        )
        return inputs, targets, absent

    def _usable(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Zeros for an example that is absent, so that no model or loss gets what it has."""
        first, second = (part.new_zeros(part.shape[1:], device="cpu") for part in self.empty_batch)
        absent_example = first, second, torch.tensor(True)
        try:
            one, other = self._pair(index)
        except OsoError:  # of what it is, such as a text; what the data set itself raises goes on
            return absent_example
        if one.shape != first.shape or other.shape != second.shape:
            raise OsoError(
                f"{self.argument}: examples of different shapes; all must have one shape"
            )
        inputs, targets = _as(one, first.dtype), _as(other, second.dtype)
        if inputs is None or targets is None:
            return absent_example
        return inputs, targets, torch.tensor(False)

    def check_usable(self) -> None:
        """OsoError if most of the first examples are absent, which would train on hardly any.

        Arrays are refused for one value that is not finite, all of them being at hand.
        """
        tried = absent = 0
        for index in range(min(LOOKED_AT, len(self))):
            try:
                _, _, is_absent = self._usable(index)
            except Exception:  # of the data set itself: where a batch asks for that example
                continue
            tried += 1
            absent += bool(is_absent)
        if 2 * absent > tried:
            raise OsoError(
                f"{self.argument}: most of its first {tried} examples hold values that are not "
                "finite (NaN or infinite) or not numbers, and would be left out; mend them"
            )

    def _pair(self, index: int) -> tuple[Tensor, Tensor]:
        example = self.dataset[index]
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise OsoError(
                f"{self.argument}: each example must be a pair of an input and a target, not "
                f"{type(example).__name__}"
            )
        one, other = (
            _number(self.argument, name, value) for name, value in zip(_NAMES, example, strict=True)
        )
        return one, other


def widen(examples: Examples, values: Callable[[Tensor, Tensor], Tensor]) -> Examples:
    """A data set whose whole inputs or targets become decimal where whole ones are no other thing.

    A first target of 1 beside others of 0.5 is a decimal number to a squared error, and a class to
    cross entropy. So `values`, of three made-up examples on the host, decides, and no example: it
    takes decimal numbers, below zero too, and gives for whole numbers among them what it gives for
    these as whole ones, if it takes those. Also for keys so large that float32 does not have them.
    OsoError if most examples are unusable with the types that are settled then.
    """
    if not isinstance(examples, DatasetExamples):
        return examples
    settled = _widen(examples, values)
    settled.check_usable()
    return settled


def _widen(
    examples: DatasetExamples, values: Callable[[Tensor, Tensor], Tensor]
) -> DatasetExamples:
    empty = [part.cpu() for part in examples.empty()]
    dtypes = [part.dtype for part in empty]
    choices = [
        [torch.float32, dtype] if not dtype.is_floating_point else [dtype] for dtype in dtypes
    ]

    def tried(types: Sequence[torch.dtype], place: int, numbers: Sequence[float]) -> Tensor | None:
        """The values with these numbers in one place, and 0 and 1 in the other."""
        made = [
            torch.tensor(numbers if at == place else (0, 1, 1))
            .view(-1, *[1] * (part.dim() - 1))
            .expand(3, *part.shape[1:])
            .to(dtype)
            for at, (part, dtype) in enumerate(zip(empty, types, strict=True))
        ]
        try:
            with torch.no_grad():
                return values(*made)
        except Exception:  # whatever a model or a loss may do with another type
            return None

    def alike(types: Sequence[torch.dtype], place: int) -> bool:
        decimal = tried(types, place, (-1.3, 0.4, 2.1)) is not None
        for numbers in ((0, 1, 1), (0, 1, 2**24 + 1)):
            other, whole = tried(types, place, numbers), tried(dtypes, place, numbers)
            if whole is not None and (other is None or not torch.equal(other, whole)):
                return False
        return decimal

    for types in itertools.product(*choices):
        changed = [place for place in range(2) if types[place] != dtypes[place]]
        if all(alike(types, place) for place in changed):
            return examples.with_types(*types)
    return examples


def format_types(examples: Examples) -> str:
    """What a statement says of the examples' types; public."""
    parts = (
        f"{name} {str(part.dtype).removeprefix('torch.')} {list(part.shape[1:])}"
        for name, part in zip(_NAMES, examples.empty(), strict=True)
    )
    left_out = ""
    if isinstance(examples, DatasetExamples):
        left_out = (
            "; an example of the data set with values that are not finite, or not of these types, "
            "adds nothing to any step"
        )
    return f"{', '.join(parts)}{left_out}"


def _as(part: Tensor, dtype: torch.dtype) -> Tensor | None:
    """A copy of this type: a data set may fill one buffer again and again. None where it has none:
    of what is not finite, or of whole numbers those with decimals or too large for a double."""
    if part.is_floating_point() and not part.isfinite().all():
        return None
    if part.is_floating_point() and not dtype.is_floating_point:
        whole = (part == part.round()) & (part.abs() < 2**53)
        if not whole.all():
            return None
    return part.to("cpu", dtype, copy=True)


def _numbers(argument: str, name: str, values: Any) -> Tensor:
    tensor = _number(argument, name, values)
    if tensor.dim() == 0 or len(tensor) == 0:
        raise OsoError(f"{argument}: there are no {name}")
    return tensor


def _number(argument: str, name: str, values: Any) -> Tensor:
    if hasattr(values, "to_numpy"):  # a table's
        values = values.to_numpy()
    if isinstance(values, np.ma.MaskedArray):  # what is masked would be trained on
        raise OsoError(
            f"{argument}: {name} are a masked array; fill what is masked, or leave it out"
        )
    try:
        tensor = values if torch.is_tensor(values) else _tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        kind = getattr(values, "dtype", type(values).__name__)
        raise OsoError(
            f"{argument}: {name} are no numbers ({kind}); allowed are decimal and whole ones, "
            "classes as 0, 1, 2, ..."
        ) from None
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        raise OsoError(
            f"{argument}: {name} are a tensor that is sparse, nested, quantized or on meta; "
            "allowed are dense ones, of plain numbers"
        )
    tensor = tensor.detach()
    if tensor.is_complex():
        raise OsoError(
            f"{argument}: {name} are complex numbers; allowed are decimal and whole ones"
        )
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _tensor(array: np.ndarray) -> Tensor:
    """Of an array that may be read only, as a table's is: nothing here writes into examples."""
    if array.flags.writeable:
        return torch.as_tensor(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)
