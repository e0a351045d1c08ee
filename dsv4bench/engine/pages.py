"""Which pages of the KV pool belong to which request.

A request reserves every page it can ever need when it is admitted, so that none is preempted. Page 0 is never
handed out: it pads the block tables of shorter requests, and nothing reads it unmasked.
"""

from __future__ import annotations


class PagePool:
    """Hands out page numbers 1..pages-1."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.total = pages - 1
        self._free = list(range(pages - 1, 0, -1))

    @property
    def used_frac(self) -> float:
        return 1.0 - len(self._free) / self.total

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def take(self, pages: int) -> list[int] | None:
        """That many pages, or None when there are too few."""
        if pages > len(self._free):
            return None
        taken = self._free[-pages:]
        del self._free[-pages:]
        return taken

    def give_back(self, pages: list[int]) -> None:
        self._free += reversed(pages)
