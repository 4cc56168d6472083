"""Conversion of a user's training data to `Examples`: tensors, arrays, or a map-style data set."""

import copy
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from oso_dp.errors import OsoError
from oso_dp.gradients.structured import Structure, map_tensors
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.training.task import Examples, TensorExamples

MAX_EXAMPLES_CHECKED = 100  # of a data set, before training


def make_examples(data: Any, device: torch.device, argument: str = "data") -> Examples:
    """(inputs [n, ...], targets [n, ...]) as tensors or arrays, or a data set of such pairs.

    Floating-point numbers become float32, integers int64. Raises OsoError for data that cannot be
    trained on; of a data set that is not a TensorDataset, only the first example is checked until
    `widen` has chosen its types. `argument`: the name of the caller's argument, for messages.
    """
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, IterableDataset):
        raise OsoError(f"{argument}: IterableDataset; must be a map-style data set, to be sampled")
    if isinstance(data, list) and len(data) > 2 and all(_is_pair(one) for one in data):
        raise OsoError(
            f"{argument}: a list of [input, target] lists; give tuples (input, target), or two "
            "arrays"
        )
    if isinstance(data, tuple | list) and not _is_list_of_pairs(data):
        if len(data) != 2:
            raise OsoError(f"{argument}: {len(data)} elements; must be (inputs, targets)")
        inputs, targets = data
        return _tensor_examples(inputs, targets, device, argument)
    is_mapping = isinstance(data, Mapping)
    if is_mapping and _find_labels(data):
        return _tensor_examples(*_split_labels(data), device, argument)
    if not is_mapping and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        try:
            size = len(data)
        except Exception as error:  # a data set without a length may raise any exception
            line = " ".join(str(error).split())
            raise OsoError(f"{argument}: has no length ({type(error).__name__}: {line})") from error
        if size == 0:
            raise OsoError(f"{argument}: has no examples; must have at least one")
        check_no_repeats(data, argument)
        return DatasetExamples(data, device, argument)
    hint = "; pass its data set, batches are sampled here" * isinstance(data, DataLoader)
    raise OsoError(
        f"{argument}: {type(data).__name__}; must be (inputs, targets) or a map-style data set "
        f"with a length{hint}"
    )


def _is_pair(example: Any) -> bool:
    return isinstance(example, list) and len(example) == 2


_LABELS = ("labels", "label")  # the key of the targets in a dictionary


def _find_labels(values: Mapping[Any, Any]) -> str | None:
    return next((name for name in _LABELS if name in values), None)


def _split_labels(values: Mapping[Any, Any]) -> tuple[dict[str, Any], Any]:
    """Inputs and targets of a dictionary that has both."""
    labels = _find_labels(values)
    assert labels is not None
    return {key: value for key, value in values.items() if key != labels}, values[labels]


def _tensor_examples(
    inputs: Any, targets: Any, device: torch.device, argument: str
) -> TensorExamples:
    several = _is_structured(inputs)
    parts = _name_parts(inputs) | {"targets": targets}
    tensors = {name: _to_batch(argument, name, values, several) for name, values in parts.items()}
    count = len(tensors["targets"])
    for name, values in tensors.items():
        if len(values) != count:
            raise OsoError(
                f"{argument}: {len(values)} {name} and {count} targets; must be equally many"
            )
        if values.is_floating_point() and not values.isfinite().all():
            raise OsoError(f"{argument}: {name} contain NaN or infinity; must be finite")
    *of_inputs, of_targets = (values.to(device) for values in tensors.values())
    return TensorExamples(_structured(inputs, of_inputs), of_targets)


def _is_structured(inputs: Any) -> bool:
    """Whether these are several tensors or arrays: a model's keywords, or its arguments."""
    if isinstance(inputs, Mapping):
        return True
    return isinstance(inputs, tuple) and all(
        hasattr(one, "shape") or hasattr(one, "to_numpy") for one in inputs
    )


def _name_parts(inputs: Any) -> dict[str, Any]:
    """Each tensor or array of the inputs, by what messages call it."""
    if not _is_structured(inputs):
        return {"inputs": inputs}
    parts = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return {f"inputs[{key!r}]": values for key, values in parts}


def _structured(inputs: Any, tensors: Sequence[Tensor]) -> Structure:
    """The tensors in the structure of the inputs."""
    if isinstance(inputs, Mapping):
        return dict(zip(inputs, tensors, strict=True))
    return tuple(tensors) if _is_structured(inputs) else tensors[0]


def _is_list_of_pairs(data: Any) -> bool:
    """A list of three or more pairs, or of dictionaries with labels, is a data set; two elements
    are inputs and targets."""
    if not isinstance(data, list) or len(data) <= 2:
        return False
    return all(
        (isinstance(example, tuple) and len(example) == 2)
        or (isinstance(example, Mapping) and _find_labels(example) is not None)
        for example in data
    )


class DatasetExamples:
    """Examples of a map-style data set, (input, target) each, fetched when a batch contains them.

    Their dtypes are those of the first example, so that no example decides for others; `widen` may
    replace integer dtypes by float32. An example with values of other types or with values that are
    not finite counts as absent: an error there would reveal it. Another shape raises OsoError;
    shapes are public.
    """

    def __init__(self, dataset: Dataset[Any], device: torch.device, argument: str = "data") -> None:
        self.dataset: Any = dataset
        self.device, self.argument = device, argument
        try:
            self.empty_batch = map_tensors(lambda one: one[None][:0].to(device), self._pair(0))
        except OsoError:
            raise
        except Exception as error:  # a data set may raise any exception
            line = " ".join(str(error).split())
            name = type(error).__name__
            raise OsoError(f"{argument}: has no example at index 0 ({name}: {line})") from error

    def with_types(self, inputs: torch.dtype, targets: torch.dtype) -> "DatasetExamples":
        """The same examples, of one input tensor each, with these dtypes."""
        converted = copy.copy(self)
        pairs = zip(self.empty_batch, (inputs, targets), strict=True)
        converted.empty_batch = tuple(tensor.to(dtype) for tensor, dtype in pairs)
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

    def _fetch(self, indices: Sequence[int]) -> tuple[Structure, Tensor, Tensor]:
        """Inputs, targets and which examples are absent, one row per index."""
        fetched: dict[int, tuple[Structure, Tensor, Tensor]] = {}  # padding repeats an index
        for index in indices:
            if index not in fetched:
                fetched[index] = self._example(index)
        rows = [fetched[index] for index in indices]
        inputs, targets, absent = tree_map(
            lambda *parts: torch.stack(parts).to(self.device), rows[0], *rows[1:]
        )
        return inputs, targets, absent

    def _example(self, index: int) -> tuple[Structure, Tensor, Tensor]:
        """Input, target, is absent. An absent example is zero: no model or loss sees its values."""
        zeros = map_tensors(
            lambda one: one.new_zeros(one.shape[1:], device="cpu"), self.empty_batch
        )
        try:
            given = self._pair(index)
        except OsoError:  # not numbers; exceptions of the data set itself propagate
            return *zeros, torch.tensor(True)
        (found, form), (wanted, wanted_form) = tree_flatten(given), tree_flatten(zeros)
        if form != wanted_form or [one.shape for one in found] != [one.shape for one in wanted]:
            raise OsoError(
                f"{self.argument}: examples of different shapes; all must have one shape"
            )
        converted = [_convert(one, like.dtype) for one, like in zip(found, wanted, strict=True)]
        if any(one is None for one in converted):
            return *zeros, torch.tensor(True)
        return *tree_unflatten(converted, form), torch.tensor(False)

    def check_usable(self) -> None:
        """OsoError if more than half of the first examples are absent: few would be trained on.

        Tensors and arrays are refused for a single value that is not finite, since all are present.
        """
        checked = absent = 0
        for index in range(min(MAX_EXAMPLES_CHECKED, len(self))):
            try:
                _, _, is_absent = self._example(index)
            except Exception:  # of the data set itself; raised when a batch contains the example
                continue
            checked += 1
            absent += bool(is_absent)
        if 2 * absent > checked:
            raise OsoError(
                f"{self.argument}: more than half of the first {checked} examples contain NaN, "
                "infinity or no numbers, and would be left out; correct them"
            )

    def _pair(self, index: int) -> tuple[Structure, Tensor]:
        example = self.dataset[index]
        if isinstance(example, Mapping) and _find_labels(example):
            example = _split_labels(example)
        if not isinstance(example, tuple | list) or len(example) != 2:
            raise OsoError(
                f"{self.argument}: example of type {type(example).__name__}; must be a pair "
                "(input, target), or a dictionary with labels"
            )
        inputs, targets = example
        tensors = [
            _to_tensor(self.argument, name, values, _is_structured(inputs))
            for name, values in _name_parts(inputs).items()
        ]
        return _structured(inputs, tensors), _to_tensor(self.argument, "targets", targets)


def widen(examples: Examples, values: Callable[[Tensor, Tensor], Tensor]) -> Examples:
    """Replace integer inputs or targets of a data set by float32 where that changes no value.

    A first target of 1 is a floating-point number to a squared error (others may be 0.5), and a
    class to cross entropy. No example may decide which it is, so `values` does, a function of three
    made-up examples on the CPU. A dtype becomes float32 if `values` accepts floating-point numbers
    there, negative ones included, and returns the same for integers of either dtype, also for
    integers that float32 cannot represent. Raises OsoError if more than half of the first examples
    are unusable with the chosen dtypes.
    """
    if not isinstance(examples, DatasetExamples):
        return examples
    several = not isinstance(examples.empty()[0], Tensor)  # then each has its own meaning
    widened = examples if several else _widen(examples, values)
    widened.check_usable()
    return widened


def _widen(
    examples: DatasetExamples, values: Callable[[Tensor, Tensor], Tensor]
) -> DatasetExamples:
    empty = [tensor.cpu() for tensor in examples.empty()]
    dtypes = [tensor.dtype for tensor in empty]
    choices = [
        [torch.float32, dtype] if not dtype.is_floating_point else [dtype] for dtype in dtypes
    ]

    def evaluate(
        types: Sequence[torch.dtype], index: int, numbers: Sequence[float]
    ) -> Tensor | None:
        """`values` with these numbers as inputs (index 0) or targets (1); 0 and 1 as the others."""
        batch = [
            torch.tensor(numbers if position == index else (0, 1, 1))
            .view(-1, *[1] * (tensor.dim() - 1))
            .expand(3, *tensor.shape[1:])
            .to(dtype)
            for position, (tensor, dtype) in enumerate(zip(empty, types, strict=True))
        ]
        try:
            with torch.no_grad():
                return values(*batch)
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
        changed = [index for index in range(2) if types[index] != dtypes[index]]
        if all(is_equivalent(types, index) for index in changed):
            return examples.with_types(*types)
    return examples


def format_types(examples: Examples) -> str:
    """The examples' dtypes and shapes, for a statement; public."""
    inputs, targets = examples.empty()
    types = (
        f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape[1:])}"
        for name, tensor in (_name_parts(inputs) | {"targets": targets}).items()
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


def _to_batch(argument: str, name: str, values: Any, keeps_bool: bool) -> Tensor:
    tensor = _to_tensor(argument, name, values, keeps_bool and name != "targets")
    if tensor.dim() == 0 or len(tensor) == 0:
        raise OsoError(f"{argument}: has no {name}; must have at least one row")
    return tensor


def _to_tensor(argument: str, name: str, values: Any, keeps_bool: bool = False) -> Tensor:
    """`keeps_bool`: a mask stays one; else it becomes 0 and 1."""
    if hasattr(values, "to_numpy"):  # a pandas object
        values = values.to_numpy()
    if isinstance(values, np.ma.MaskedArray):  # masked values would be trained on
        raise OsoError(f"{argument}: {name} are a masked array; fill or drop the masked values")
    try:
        tensor = values if torch.is_tensor(values) else _from_array(np.asarray(values))
    except (TypeError, ValueError, RuntimeError):
        value_type = getattr(values, "dtype", type(values).__name__)
        raise OsoError(
            f"{argument}: {name} of type {value_type}; must be numbers, classes as 0, 1, 2, ..."
        ) from None
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        raise OsoError(
            f"{argument}: {name} are a sparse, nested, quantized or meta tensor; must be dense"
        )
    tensor = tensor.detach()
    if tensor.is_complex():
        raise OsoError(f"{argument}: {name} are complex; must be floats or integers")
    if keeps_bool and tensor.dtype == torch.bool:
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _from_array(array: np.ndarray) -> Tensor:
    """A tensor of an array that may be read-only (pandas): nothing here writes to examples."""
    if array.flags.writeable:
        return torch.as_tensor(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)
