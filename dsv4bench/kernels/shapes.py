"""What a generated call looks like, before any tensor exists: sizes, and the features that kernels stumble on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# extreme: blocks of scale byte 0 or 254 among ordinary ones, which contribute next to nothing and must not turn into
# anything else. "that counts": inputs of the opposite magnitude make such a block decide the result.
Scales = Literal["ordinary", "extreme", "0 that counts", "254 that counts"]
Routing = Literal["uniform", "some -1", "a token of -1", "all -1", "skewed"]
Lengths = Literal["full", "absent", "mixed", "short", "one empty", "window empty", "extra empty", "all empty"]
# What the index holds at and beyond the length: good rows, rows just outside the cache (its neighbours in memory are
# NaN), or any 32 bits.
Beyond = Literal["rows", "outside", "anything"]
Holes = Literal["none", "some", "a request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """M tokens, each with `top_k` of E experts of width D and inner width I."""

    tokens: int
    experts: int = 256
    top_k: int = 6
    hidden: int = 4096
    inner: int = 2048
    routing: Routing = "uniform"  # skewed: all tokens take the same experts
    clamp: bool = False  # most gates and ups exceed the limit, on both sides
    scales: Scales = "ordinary"

    @property
    def shape(self) -> str:
        """Without the batch: "E256 top6 D4096 I2048"."""
        return f"E{self.experts} top{self.top_k} D{self.hidden} I{self.inner}"

    @property
    def label(self) -> str:
        features = [] if self.routing == "uniform" else [f"experts {self.routing}"]
        features += ["clamped"] if self.clamp else []
        return ", ".join((f"{self.shape} M{self.tokens}", *features, *_scales(self.scales)))

    @property
    def weights(self) -> tuple[int, int, int, Scales]:
        """Shapes that agree in this can share their experts."""
        return self.experts, self.hidden, self.inner, self.scales


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """B requests of one query token, H heads, `window` entries of one cache and `extra` of another (0: no such)."""

    batch: int
    heads: int = 64
    window: int = 128
    extra: int = 512
    page_size: int = 64
    window_page_size: int | None = None  # None: page_size
    sink: bool = True
    lengths: Lengths = "full"  # short: an eighth of top-k at most; mixed: 0 to top-k
    beyond: Beyond = "rows"
    holes: Holes = "none"  # negative indices: here and there and at the end, or all of one request's
    nan_rope: bool = False  # every other rope byte is NaN when read as E4M3
    nan_padding: bool = False  # the eighth scale byte is 255
    scales: Scales = "ordinary"

    @property
    def window_pages_of(self) -> int:
        return self.window_page_size or self.page_size

    @property
    def shape(self) -> str:
        """Without the batch: "H64 window128 extra512 page64 sink"."""
        apart = self.window_pages_of != self.page_size and self.extra
        page = f"page{self.window_pages_of}+{self.page_size}" if apart else f"page{self.page_size}"
        parts = f"H{self.heads} window{self.window} extra{self.extra} {page if self.extra else self._window_page}"
        return f"{parts} sink" if self.sink else parts

    @property
    def _window_page(self) -> str:
        return f"page{self.window_pages_of}"

    @property
    def label(self) -> str:
        features = [] if self.lengths == "full" else [f"lengths {self.lengths}"]
        features += [] if self.beyond == "rows" else [f"{self.beyond} beyond"]
        features += [] if self.holes == "none" else [f"-1 in {self.holes}"]
        features += ["rope bytes NaN as E4M3"] if self.nan_rope else []
        features += ["padding byte 255"] if self.nan_padding else []
        return ", ".join((f"{self.shape} B{self.batch}", *features, *_scales(self.scales)))


Shape = MoeShape | AttentionShape


def _scales(scales: Scales) -> list[str]:
    if scales == "ordinary":
        return []
    return ["scale bytes 0 and 254" if scales == "extreme" else f"scale byte {scales}"]
