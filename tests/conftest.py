"""What every test rests on.

A shell that starts a job in the background without job control has it ignore SIGINT, and its children inherit that:
tests that send the signal to themselves or to a server would wait for ever.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
