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

_WIDTH = 64  # rows of a user in one forward pass, at most


@dataclass(frozen=True)
class Slice:
    """Rows of a local step of G users, at most `_WIDTH` of each.

    rows: indices in the data set, int64 [G, w]. weights: one over the number of rows in the user's
    local batch, 0 for padding, float32 [G, w].
    """

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

    def __len__(self) -> int:
        return len(self._starts)

    def rows_of(self, user: int) -> npt.NDArray[np.int64]:
        """Indices of the user's rows, ascending."""
        start = self._starts[user]
        return self._rows[start : start + self._sizes[user]]

    def first_rows(self, users: Tensor) -> Tensor:
        """The index of each user's first row; the same shape."""
        return self._first.to(users.device)[users]

    def groups(self, users: Tensor, size: int) -> Iterator[Tensor]:
        """These distinct users in groups of at most `size`, ordered by their numbers of rows."""
        order = self._sizes[users.cpu().numpy()].argsort(kind="stable")
        yield from users[torch.from_numpy(order).to(users.device)].split(size)

    def local_steps(
        self,
        users: Sequence[int],
        group_size: int,
        local: LocalTraining,
        shuffle: Callable[[int, int, npt.NDArray[np.int64]], npt.NDArray[np.int64]],
        device: torch.device,
    ) -> Iterator[list[Slice]]:
        """The local steps of a group of distinct users, as slices whose gradients are added up.

        Users with fewer rows and fewer users than `group_size` are padded: shapes depend on public
        options alone, since the rounding of a product depends on its shape.

        shuffle: a user's rows in random order; of the user, the epoch and the rows.
        """
        width = min(_WIDTH, local.batch_size or local.rows_per_user or _WIDTH)
        for epoch in range(local.epochs):
            if local.batch_size is None:
                order = [self.rows_of(user) for user in users]
            else:
                order = [shuffle(user, epoch, self.rows_of(user)) for user in users]
            longest = max(map(len, order), default=0)
            size = local.batch_size or max(1, longest)
            for start in range(0, longest, size):
                batches = [rows[start : start + size] for rows in order]
                yield [
                    _slice(batches, group_size, at, width, device)
                    for at in range(0, max(map(len, batches)), width)
                ]


def _slice(
    batches: Sequence[npt.NDArray[np.int64]],
    group_size: int,
    start: int,
    width: int,
    device: torch.device,
) -> Slice:
    rows = np.zeros((group_size, width), dtype=np.int64)
    weights = np.zeros((group_size, width), dtype=np.float32)
    for user, batch in enumerate(batches):
        part = batch[start : start + width]
        rows[user, : len(part)] = part
        weights[user, : len(part)] = 1 / max(1, len(batch))
    return Slice(torch.from_numpy(rows).to(device), torch.from_numpy(weights).to(device))
