"""What is taken over from a user's DataLoader, and the worker processes that fetch examples.

Batches are sampled by the mechanism. Of a loader, this package uses its data set, its `collate_fn`
and its worker processes, not its batches.
"""

import contextlib
import copy
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
    get_worker_info,
)

from oso_dp.errors import OsoError
from oso_dp.privacy.global_generators import fresh_generators

Collate = Callable[[list[Any]], Any]
Request = tuple[Sequence[int], Any]  # indices, and the types of their values
Answer = tuple[Any, Exception | None]  # the examples, or why there are none


@dataclass(frozen=True)
class LoaderOptions:
    """What a DataLoader says of fetching examples.

    Attributes:
        collate_fn: applied to one example at a time; None for torch's.
        workers: the arguments of a DataLoader with worker processes; empty without.
    """

    collate_fn: Collate | None = None
    workers: dict[str, Any] = field(default_factory=dict)


def read_loader(loader: DataLoader[Any], argument: str) -> tuple[Any, LoaderOptions]:
    """The data set of a loader, and how its examples are fetched.

    Raises OsoError if its batches cannot be replaced by Poisson batches of the data set.
    """
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        refuse_stream(argument)
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise OsoError(
            f"{argument}: {type(loader).__name__}, which makes batches in its own __iter__; "
            f"{_NEXT_STEP}"
        )
    _check_sampler(loader, argument)
    collate: Any = loader.collate_fn
    if collate is default_collate or collate is default_convert:
        collate = None
    if collate is not None and loader.batch_sampler is None:
        raise OsoError(
            f"{argument}: DataLoader with a collate_fn and batch_size None; set a batch_size, so "
            "that collate_fn takes a list of examples"
        )
    workers: dict[str, Any] = {}
    if loader.num_workers > 0:
        workers = {
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor,
            "multiprocessing_context": loader.multiprocessing_context,
            "timeout": loader.timeout,
            "generator": loader.generator,  # of the seeds of the processes
            "worker_init_fn": _InitWorker(loader.worker_init_fn),
        }
    return dataset, LoaderOptions(collate, workers)


def refuse_stream(argument: str) -> None:
    raise OsoError(f"{argument}: IterableDataset; must be a map-style data set, to be sampled")


_NEXT_STEP = (
    "batches are sampled here, with equal rates; pass the data set itself, or a "
    "torch.utils.data.Subset of it"
)


def _check_sampler(loader: DataLoader[Any], argument: str) -> None:
    """OsoError unless the loader has each example once in an epoch, in any order."""
    batches: Any = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        raise OsoError(f"{argument}: DataLoader with a {type(batches).__name__}; {_NEXT_STEP}")
    sampler: Any = loader.sampler if batches is None else batches.sampler
    name = type(sampler).__name__
    if type(sampler) is RandomSampler:
        if sampler.replacement:
            raise OsoError(f"{argument}: DataLoader with a {name} with replacement; {_NEXT_STEP}")
    elif type(sampler) is not SequentialSampler:
        raise OsoError(f"{argument}: DataLoader with a {name}; {_NEXT_STEP}")
    source: Any = sampler.data_source
    size = len(loader.dataset)  # type: ignore[arg-type]
    if (len(source), len(sampler)) != (size, size):
        raise OsoError(
            f"{argument}: DataLoader with a {name} of {len(sampler)} indices of a data set of "
            f"{size} examples; {_NEXT_STEP}"
        )


class Reader(Protocol):
    """Fetches examples of a data set, in any process."""

    @property
    def dataset(self) -> Any: ...

    def read(self, indices: Sequence[int], types: Any) -> Any: ...


class Fetcher:
    """Examples from a reader, in this process or in worker processes.

    The processes start at the first request and last until `close`. is_public: whether the data
    need no protection. If they do, what they draw (a random crop) is seeded anew in each request.
    """

    def __init__(self, reader: Reader, options: LoaderOptions, is_public: bool) -> None:
        self._requests = _Requests(reader, is_public)
        self._options, self._queue = options.workers, _Queue()
        self._loader: DataLoader[Answer] | None = None
        self._pending: Iterator[Answer] | None = None  # answers to the requests of the queue
        self._ready: tuple[list[Request], list[Answer]] | None = None  # to those before

    def split(self, indices: Sequence[int]) -> list[Sequence[int]]:
        """Parts of a batch, such that all worker processes have equally many."""
        parts = self._options.get("num_workers", 1) * (self._options.get("prefetch_factor") or 1)
        size = max(1, -(-len(indices) // parts))
        return [indices[start : start + size] for start in range(0, len(indices), size)]

    def __call__(self, requests: Iterable[Request]) -> Iterable[Answer]:
        """An answer to each request, in order."""
        if not self._options:
            return map(self._requests.answer, requests)
        requests = list(requests)
        if self._ready is not None and self._ready[0] == requests:
            answers, self._ready = self._ready[1], None
            return answers
        if self._pending is None or self._queue.requests != requests:
            self.prefetch(requests)
        self._collect()
        assert self._ready is not None
        answers, self._ready = self._ready[1], None
        return answers

    def prefetch(self, requests: Iterable[Request]) -> None:
        """Start to fetch the examples of a later call, when those of the next are there.

        They are discarded if the requests of that call differ.
        """
        if not self._options:
            return
        self._collect()
        try:
            self._queue.requests = list(requests)
            self._pending = iter(self._start())
        except BaseException:
            self.close()
            raise

    def _collect(self) -> None:
        """Wait for what worker processes are fetching."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        try:
            self._ready = self._queue.requests, list(pending)
        except BaseException:  # what is still on its way is no answer to a later request
            self.close()
            raise

    def _start(self) -> DataLoader[Answer]:
        if self._loader is None:
            with warnings.catch_warnings():  # the user's loader warned of too many processes
                warnings.simplefilter("ignore")
                self._loader = DataLoader(
                    self._requests,  # type: ignore[arg-type]
                    batch_sampler=self._queue,  # type: ignore[arg-type]
                    collate_fn=_identity,
                    persistent_workers=True,
                    **self._options,
                )
        return self._loader

    def close(self) -> None:
        """End the worker processes; a later request starts new ones."""
        loader, self._loader, self._pending, self._ready = self._loader, None, None, None
        processes: Any = None if loader is None else loader._iterator
        if processes is not None:
            processes._shutdown_workers()  # torch has no public way


class _Queue:
    """The batch sampler of the inner loader: the requests of one call."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)


class _Requests:
    """The data set of the inner loader, whose indices are requests."""

    def __init__(self, reader: Reader, is_public: bool) -> None:
        self.reader, self.is_public = reader, is_public

    def __len__(self) -> int:
        return len(self.reader.dataset)

    def answer(self, request: Request) -> Answer:
        try:
            with contextlib.nullcontext() if self.is_public else fresh_generators():
                return self.reader.read(*request), None
        except Exception as error:  # a data set may raise any exception
            return None, error

    def __getitems__(self, request: Request) -> Answer:
        """An answer that can be sent to the parent process."""
        result, error = self.answer(request)
        if error is None or isinstance(error, OsoError):
            return result, error
        note = "".join(traceback.format_exception(error))
        try:
            ForkingPickler.dumps(error)
            copy.copy(error)  # made anew as in the parent process
        except Exception:  # cannot be sent
            error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(note)
        return result, error


@dataclass(frozen=True)
class _InitWorker:
    """Prepares a worker process: by the user's function, as in the user's loader."""

    by_user: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        # Ctrl-C ends a training after the current step, which needs its examples.
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.reader.dataset)
        if self.by_user is not None:
            self.by_user(worker)


def _identity(answer: Any) -> Any:
    return answer
