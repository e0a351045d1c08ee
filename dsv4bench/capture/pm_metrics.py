"""Which counters are sampled together: sets that may fit one pass, the best first.

A sampler has one pass only, and which metrics share it, and how they are called, differs by chip. Each set is tried
with the chip's own library; the first that takes one pass is used. All are of elapsed cycles, idle SMs included.
"""

from __future__ import annotations

_OF_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_TRIAGE = "TPC.TriageCompute."

_TENSOR = f"sm__pipe_tensor_cycles_active{_OF_ELAPSED}"
_TENSOR_REALTIME = f"sm__pipe_tensor_cycles_active_realtime{_OF_ELAPSED}"
_MMA = f"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active{_OF_ELAPSED}"
_HALF_MMA = f"sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active{_OF_ELAPSED}"
_SM = f"sm__cycles_active{_OF_ELAPSED}"
_DRAM = f"dram__throughput{_OF_ELAPSED}"
_DRAMC = f"dramc__throughput{_OF_ELAPSED}"
_TRIAGED = (f"{_TRIAGE}{_TENSOR_REALTIME}", f"{_TRIAGE}{_SM}")

HFMA2_TELLS = ("GH100",)  # chips where MMA is counted apart from packed half arithmetic

Metrics = tuple[str, ...]


def sets_for(chip: str) -> list[Metrics]:
    """Sets to try, in this order."""
    apart = [(_TENSOR, mma, _SM, _DRAM) for mma in (_MMA, _HALF_MMA)] if chip in HFMA2_TELLS else []
    return [
        *apart,
        (_TENSOR, _SM, _DRAM),
        (_TENSOR_REALTIME, _SM, _DRAM),
        (_TENSOR, _SM, _DRAMC),
        (_TENSOR_REALTIME, _SM, _DRAMC),
        (*_TRIAGED, _DRAM),
        (*_TRIAGED, _DRAMC),
        (_TENSOR, _SM),
        (_TENSOR_REALTIME, _SM),
        _TRIAGED,
        (_TENSOR,),
        (_TENSOR_REALTIME,),
    ]
