"""`profile --with ncu`: count first, then break down what was named with the counters as evidence, or them alone."""

from __future__ import annotations

import msgspec

from dsv4bench.capture.ncu import refuse_url
from dsv4bench.records.progress import MessageCallback
from dsv4bench.runs.profile import Profile, ProfileOptions, checked_options, run_profile
from dsv4bench.runs.profile_ncu import NcuOptions, run_profile_ncu


def run_profile_counted(base: ProfileOptions, o: NcuOptions, url: str | None, say: MessageCallback) -> Profile:
    """Raises UsageError for a server, which ncu must not replay, and what the two runs raise."""
    if url is not None:
        refuse_url(url)
    checked_options(base)
    counted = run_profile_ncu(o, say)
    of_labels = base.concurrency if base.traces else []  # without a trace they were ncu's batches
    found = run_profile(msgspec.structs.replace(base, counted=counted.counters, concurrency=of_labels))
    warnings = [*found.document.warnings, *counted.warnings]
    return found._replace(document=msgspec.structs.replace(found.document, warnings=warnings))
