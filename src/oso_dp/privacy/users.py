"""Users: which rows of the training data belong to whom, where one user is the unit of privacy.

A user's rows, their number and their local training are private, and depend on no other user: the
mechanism draws users, and a user's order of rows has a seed of its own. Only the number of users is
public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.local_training import LocalTraining

_SLICE = 64  # rows of a user in one forward pass, at most


@dataclass(frozen=True)
class Slice:
    """Rows of a local step, at most `_SLICE` of each user.

    users: positions in the batch, int64 [u]. rows: indices in the data set, int64 [u, w]. weights:
    one over the number of rows in the user's local batch, 0 for padding, float32 [u, w].
    """

    users: Tensor
    rows: Tensor
    weights: Tensor


class Users:
    """The rows of each user. Users are numbered by their first row.

    ids: an integer or a text for each row, [n]; all rows with one id are one user's.

    Raises:
        OsoError: for ids of one user only.
    """

    def __init__(self, ids: npt.NDArray, rows_per_user: int | None = None) -> None:
        _, first, number, counts = np.unique(
            ids, return_index=True, return_inverse=True, return_counts=True
        )
        if len(counts) < 2:
            raise OsoError("users: one id only; must be the ids of at least two users")
        place = np.empty_like(first)
        place[np.argsort(first)] = np.arange(len(first))
        self._rows = np.argsort(place[number], kind="stable")
        sizes = counts[np.argsort(first)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._first = torch.from_numpy(self._rows[self._starts])
        self._sizes = sizes if rows_per_user is None else np.minimum(sizes, rows_per_user)
        largest = int(self._sizes.max())
        self.have_one_row = largest == 1
        self._width = min(_SLICE, -(-largest // 8) * 8)

    def __len__(self) -> int:
        return len(self._starts)

    def rows_of(self, user: int) -> npt.NDArray[np.int64]:
        """Indices of the user's rows, ascending."""
        start = self._starts[user]
        return self._rows[start : start + self._sizes[user]]

    def first_rows(self, users: Tensor) -> Tensor:
        """The index of each user's first row; the same shape."""
        return self._first.to(users.device)[users]

    def local_steps(
        self,
        users: Sequence[int],
        local: LocalTraining,
        shuffle: Callable[[int, int, npt.NDArray[np.int64]], npt.NDArray[np.int64]],
        device: torch.device,
    ) -> Iterator[list[Slice]]:
        """The local steps of these distinct users, each as slices whose gradients are added up.

        The widths of slices do not depend on which users these are. Users with fewer rows have
        fewer steps. shuffle: the rows in random order, of the user, the epoch and the rows.
        """
        for epoch in range(local.epochs):
            if local.batch_size is None:
                order = [self.rows_of(user) for user in users]
            else:
                order = [shuffle(user, epoch, self.rows_of(user)) for user in users]
            longest = max(map(len, order), default=0)
            size = local.batch_size or max(1, longest)
            width = min(self._width, local.batch_size or self._width)
            for start in range(0, longest, size):
                batches = [rows[start : start + size] for rows in order]
                yield [
                    _slice(batches, at, width, device)
                    for at in range(0, max(map(len, batches)), width)
                ]


def _slice(
    batches: Sequence[npt.NDArray[np.int64]], start: int, width: int, device: torch.device
) -> Slice:
    users = [user for user, rows in enumerate(batches) if len(rows) > start]
    rows = np.zeros((len(users), width), dtype=np.int64)
    weights = np.zeros((len(users), width), dtype=np.float32)
    for place, user in enumerate(users):
        part = batches[user][start : start + width]
        rows[place, : len(part)] = part
        weights[place, : len(part)] = 1 / len(batches[user])
    return Slice(*(torch.from_numpy(np.asarray(one)).to(device) for one in (users, rows, weights)))
