"""A prefill worker under load: C requests at a time that ask for next to nothing but their prompt.

A window of decode steps tells nothing of a prefill worker, whose steps are prompts. Its window closes after so many
requests; TPOT has no meaning there, so nothing is compared.
"""

from __future__ import annotations

import dataclasses

from dsv4bench.capture import CaptureWindow
from dsv4bench.load.hold import Hold
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.steady import Steady, Window
from dsv4bench.runs.told_to_stop import told_to_stop

OUTPUT_TOKENS = 2
SPARE = 8


def prefilled(s: Steady, concurrency: int, purpose: str, window: CaptureWindow, say: MessageCallback) -> Window:
    """One window over `s.steps` requests. Raises what `held` raises."""
    prompts = s.take(2 * s.steps + SPARE * concurrency, OUTPUT_TOKENS, purpose)
    with Hold(s.sender.level(prompts, concurrency)) as hold:
        hold.wait(lambda now: now.done, concurrency, s.timeout_s, f"{concurrency} requests")
        with told_to_stop(window, say):
            window.open()
            before = hold.view()
            after = hold.wait(
                lambda now: now.done - before.done, s.steps, s.timeout_s, f"{s.steps} requests in the window"
            )
            captured = window.close()
        hold.end()
    return Window(
        opened_ns=before.at_ns,
        closed_ns=after.at_ns,
        tpot_s=None,
        tokens_per_chunk=None,
        steps_seen=after.done - before.done,
        replaced=0,
        running=None,
        captured=dataclasses.replace(captured, steps_asked=s.steps, steps_seen=after.done - before.done),
        notes=list(captured.notes),
    )
