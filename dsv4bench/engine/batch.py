"""What one forward pass computes: R requests, S new positions each, and where their cache rows are.

A decode step is R requests of one position (or m under speculation), a prefill chunk one request of many. All
index tensors that several layers share are built here once. A row of a paged pool is page * per_page + offset,
where per_page is the page size for tokens and page size / ratio for compressed entries: one block table serves
every pool.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Entries:
    """The compressed entries of one ratio, as this pass sees them."""

    visible: Tensor  # int [T]: entries each position may attend, (position + 1) // ratio
    max_visible: int
    index: Tensor  # [R, max_visible]: entry rows of each request
    done_target: Tensor  # [n]: rows of the entries that this pass completes
    done_position: Tensor  # [n]: their RoPE position, ratio * j
    done_source: Tensor  # [n, span]: token rows that each pools
    done_exists: Tensor  # bool [n, span]: False before the sequence's start


@dataclass(slots=True)
class ForwardBatch:
    """T = R * S positions, flattened request by request."""

    tokens: Tensor  # int [R, S]
    start: list[int]  # first new position of each request
    tables: Tensor  # int [R, pages]
    page_size: int
    positions: Tensor = field(init=False)  # [R, S]
    token_rows: Tensor = field(init=False)  # [T]: the rows that this pass writes
    _windows: dict[int, tuple[Tensor, Tensor, int]] = field(init=False, default_factory=dict)
    _entries: dict[tuple[int, bool], Entries] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        start = torch.tensor(self.start, device=self.tokens.device)
        self.positions = start.unsqueeze(1) + torch.arange(self.tokens.shape[1], device=start.device)
        self.token_rows = self.rows(self.positions, self.page_size).reshape(-1)

    @property
    def flat_positions(self) -> Tensor:
        return self.positions.reshape(-1)

    @property
    def end(self) -> int:
        """One past the largest position."""
        return max(self.start) + self.tokens.shape[1]

    def rows(self, index: Tensor, per_page: int) -> Tensor:
        """index [R, n] of tokens or entries (not negative) -> rows [R, n] of a pool."""
        return self.tables.gather(1, index // per_page) * per_page + index % per_page

    def window(self, size: int) -> tuple[Tensor, Tensor, int]:
        """(rows [T, size], valid ones first, -1 after; valid length [T]; the largest length)."""
        if size not in self._windows:
            self._windows[size] = self._build_window(size)
        return self._windows[size]

    def _build_window(self, size: int) -> tuple[Tensor, Tensor, int]:
        requests, new = self.positions.shape
        oldest = (self.positions - size + 1).clamp(min=0)
        wanted = oldest.unsqueeze(2) + torch.arange(size, device=oldest.device)
        valid = wanted <= self.positions.unsqueeze(2)
        bounded = wanted.clamp(max=self.end - 1).reshape(requests, new * size)
        rows = torch.where(valid.reshape(requests, -1), self.rows(bounded, self.page_size), -1)
        length = (self.positions + 1).clamp(max=size)
        return rows.reshape(-1, size), length.reshape(-1), min(self.end, size)

    def entries(self, ratio: int, overlap: bool) -> Entries:
        """Built at the first layer of that ratio."""
        key = (ratio, overlap)
        if key not in self._entries:
            self._entries[key] = self._build_entries(ratio, ratio * (1 + overlap))
        return self._entries[key]

    def _build_entries(self, ratio: int, span: int) -> Entries:
        per_page = self.page_size // ratio
        visible = (self.positions + 1) // ratio
        max_visible = self.end // ratio
        every = torch.arange(max_visible, device=visible.device).expand(len(self.start), -1)
        request, new = torch.nonzero((self.positions + 1) % ratio == 0, as_tuple=True)
        last = self.positions[request, new]
        source = last.unsqueeze(1) + torch.arange(1 - span, 1, device=last.device)
        table = self.tables[request]
        bounded = source.clamp(min=0)
        source_rows = table.gather(1, bounded // self.page_size) * self.page_size + bounded % self.page_size
        entry = last // ratio
        target = table.gather(1, (entry // per_page).unsqueeze(1)).squeeze(1) * per_page + entry % per_page
        return Entries(
            visible=visible.reshape(-1),
            max_visible=max_visible,
            index=self.rows(every, per_page),
            done_target=target,
            done_position=entry * ratio,
            done_source=source_rows,
            done_exists=source >= 0,
        )
