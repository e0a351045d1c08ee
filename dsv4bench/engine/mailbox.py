"""From the engine's thread to the coroutines that wait for tokens: one wake-up of the event loop a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dsv4bench.engine.sequence import Delivery


class Mailboxes:
    """One queue a request, all on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[str, asyncio.Queue[Delivery]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def open(self, request_id: str) -> None:
        self._queues[request_id] = asyncio.Queue()

    def close(self, request_id: str) -> None:
        self._queues.pop(request_id, None)

    async def read(self, request_id: str) -> AsyncIterator[Delivery]:
        """Deliveries of an open mailbox, up to and with the one that finishes."""
        queue = self._queues[request_id]
        while True:
            delivery = await queue.get()
            yield delivery
            if delivery.finish is not None:
                return

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Called from the engine's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._sort, deliveries)

    def _sort(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            queue = self._queues.get(delivery.request_id)
            if queue is not None:  # else its client has gone
                queue.put_nowait(delivery)
