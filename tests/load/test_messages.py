"""Frames between the parent and a worker, over pipes that take and give what they like."""

from __future__ import annotations

import io

import pytest

from dsv4bench.load.messages import Failed, Finished, Go, Job, Message, Ready, Stop, Tick, read_message, write_message
from dsv4bench.records.request import RequestRecord

MESSAGES: list[Message] = [
    Job(host="h", port=1, slots=2, requests=[b"\x00\xff" * 9], indices=[3], requested=[None], schedule_ns=[5]),
    Go(),
    Stop(cancel=False),
    Ready(0, "Connection refused"),
    Tick(1, 2, 3, 4, False),
    Finished(
        start_ns=1 << 60,
        start_epoch_s=1.5,
        records=[RequestRecord(index=0, t_send_ns=1, t_end_ns=2, chunk_ns=[1, 1 << 60], error_text="é")],
        timestamps="kernel",
        lag_ns=b"\x01" * 8,
        reads=1,
        cpu_s=0.1,
        parse_cpu_s=0.1,
        wall_s=0.2,
        unsent=0,
        reuse=True,
    ),
    Failed("no", "try"),
]


class MeanPipe(io.BytesIO):
    """It takes at most three bytes at a time, and gives as few."""

    def write(self, data: object) -> int:
        return super().write(bytes(data)[:3])  # type: ignore[call-overload]

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(3, size) if size is not None and size >= 0 else 3)


def test_messages_come_out_as_they_went_in() -> None:
    pipe = MeanPipe()
    for message in MESSAGES:
        write_message(pipe, message)
    pipe.seek(0)
    assert [read_message(pipe) for _ in MESSAGES] == MESSAGES
    assert read_message(pipe) is None


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_cut_short_is_the_other_side_s_end(message: Message) -> None:
    pipe = io.BytesIO()
    write_message(pipe, message)
    raw = pipe.getvalue()
    for n in range(0, len(raw), 1 + len(raw) // 50):
        assert read_message(io.BytesIO(raw[:n])) is None
