"""The kernels in Triton: the fallbacks of the campaign, re-implemented, and what replaces them."""

import os

if os.environ.get("TRITON_INTERPRET"):
    from dsv4bench.kernels.gpu import interpreted as interpreted
