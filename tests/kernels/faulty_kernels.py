"""Two small kernels in torch, right or with one fault each: what the parity gate has to tell apart.

They read bytes by their addresses and share no code with the formats of the package. Between the two GEMMs, and for
the probabilities, they round to bf16 as real kernels do.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from dsv4bench.kernels.calls import AttentionCall, PagedRows
from dsv4bench.kernels.registry import Component, Kernel, Role
from dsv4bench.kernels.sets import Experts

# Each fault, and a part of the label of a case that must find it.
MOE_FAULTS = {
    "NaN in one element": "M1",
    "one element off by a third": "M4",
    "one token off by 3 %": "M4",
    "zeros": "M4",
    "infinite": "M1",
    "float32": "M1",
    "another shape": "M4",
    "last token not written": "M4",
    "tokens without experts not written": "a token of -1",
    "nothing written if nothing to do": "all -1",
    "left from the first call": "M4",
    "changes x": "M4",
    "changes a scale": "M4",
    "raises": "M4",
    "-1 is expert 0": "some -1",
    "-1 is the last expert": "some -1",
    "stops at -1": "some -1",
    "no bound on the gate": "clamped",
    "no bound on up": "clamped",
    "up bounded above only": "clamped",
    "up bounded below only": "clamped",
    "high nibble first": "M4",
    "gate and up swapped": "M4",
    "no route scale": "M4",
    "weights forgotten": "M4",
    "scales one block on": "M4",
    "scale shared by 64": "M4",
    "2**-127 is 0": "0 that counts",
    "2**127 is infinite": "254",
    "scale byte 254 is 2**-127": "254 that counts",
    "16 tokens an expert": "M20",
    "64 tokens an expert": "M68",
}
ATTENTION_FAULTS = {
    "NaN in one element": "B2",
    "one head off by 3 %": "B2",
    "zeros": "B2",
    "float32": "B2",
    "no lse": "B2",
    "last head not written": "H64",
    "empty requests not written": "one empty",
    "left from the first call": "B2",
    "changes q": "B2",
    "0 / 0 for an empty request": "lengths one empty",
    "an index of -1 is row 0": "-1 in some",
    "only -1 is no row": "-1 in some",
    "stops at a negative index": "-1 in some",
    "length ignored": "short",
    "length ignored in extra": "extra empty",
    "length is of the window": "mixed",
    "extra ignored": "B2",
    "window ignored": "B2",
    "no sink": "sink",
    "sink counted twice": "sink",
    "sink gives a value": "sink",
    "lse in bits": "B2",
    "lse with the sink": "sink",
    "mean of two softmaxes": "B2",
    "next page": "B2",
    "pages of 64": "page2",
    "window pages as the others": "page256+2",
    "scales after 584 bytes a row": "B2",
    "one scale for all": "B2",
    "padding byte scales the rope": "B2",
    "rope as E4M3, masked": "NaN as E4M3",
    "eight scales": "padding byte 255",
    "2**-127 is 0": "0 that counts",
    "2**127 is infinite": "254",
    "scale byte 254 is 2**-127": "254 that counts",
    "top-k in whole sixteens": "B2",
    "reads before it masks": "anything beyond",
    "no scale": "B2",
}
_MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


class _Faulty:
    kinds: ClassVar[dict[str, str]]

    def __init__(self, fault: str | None = None) -> None:
        assert fault is None or fault in self.kinds
        self.fault = fault
        self.kept: Any = None

    def power(self, scale: Tensor) -> Tensor:
        power = torch.exp2(scale.double() - 127)
        if self.fault == "2**-127 is 0":
            power[scale == 0] = 0
        elif self.fault == "2**127 is infinite":
            power[scale == 254] = math.inf
        elif self.fault == "scale byte 254 is 2**-127":
            power[scale == 254] = 2.0**-127
        return power

    def spoiled(self, out: Tensor) -> Any:
        """The faults that need no understanding of the component."""
        match self.fault:
            case "NaN in one element":
                out[-1, ..., -1] = math.nan
            case "infinite":
                out[0, 5] = math.inf
            case "one element off by a third":
                at = out[-1].abs().argmax()
                out[-1, at] *= 1.33
            case "one token off by 3 %" | "one head off by 3 %":
                out.view(-1, out.shape[-1])[-1] *= 1.03
            case "zeros":
                out = torch.zeros_like(out)
            case "float32":
                return out.float()
            case "another shape":
                return out[:-1]
            case "left from the first call":
                if self.kept is None or self.kept.shape != out.shape:
                    self.kept = out
                return self.kept
            case "raises":
                raise RuntimeError("out of resources\nsecond line")
        return out


class Moe(_Faulty):
    kinds = MOE_FAULTS

    def prepare(self, experts: Experts) -> Experts:
        return experts

    def _matrix(self, packed: Tensor, scales: Tensor) -> Tensor:
        nibbles = [packed & 15, packed >> 4]
        if self.fault == "high nibble first":
            nibbles.reverse()
        codes = torch.stack(nibbles, -1).flatten(-2).int()
        values = _MAGNITUDES.double()[codes & 7] * (1 - 2 * (codes >> 3))
        if self.fault == "scales one block on":
            scales = scales.roll(1, -1)
        powers = self.power(scales).repeat_interleave(32, -1)
        if self.fault == "scale shared by 64":
            powers = self.power(scales[..., 0::2]).repeat_interleave(64, -1)
        return values * powers

    def _expert(self, x: Tensor, e: Experts, expert: int) -> Tensor:
        gate, up = (x.double() @ self._matrix(e.w13[expert], e.s13[expert]).T).chunk(2, -1)
        if self.fault == "gate and up swapped":
            gate, up = up, gate
        gate = gate if self.fault == "no bound on the gate" else gate.clamp(max=10)
        low = None if self.fault in ("no bound on up", "up bounded above only") else -10
        high = None if self.fault in ("no bound on up", "up bounded below only") else 10
        up = up if low is high is None else up.clamp(low, high)
        hidden = (gate * gate.sigmoid() * up).bfloat16().double()
        return hidden @ self._matrix(e.w2[expert], e.s2[expert]).T

    def _experts_of(self, ids: list[int], e: Experts) -> list[int | None]:
        """None: no expert."""
        chosen: list[int | None] = []
        for expert in ids:
            if expert >= 0:
                chosen.append(expert)
            elif self.fault == "-1 is expert 0":
                chosen.append(0)
            elif self.fault == "-1 is the last expert":
                chosen.append(len(e.w13) - 1)
            elif self.fault == "stops at -1":
                break
            else:
                chosen.append(None)
        return chosen

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, e: Experts) -> Any:
        out = torch.empty_like(x)
        if self.fault == "nothing written if nothing to do" and not (ids >= 0).any():
            return out
        served: dict[int, int] = {}
        most = {"16 tokens an expert": 16, "64 tokens an expert": 64}.get(self.fault or "", 1 << 30)
        for token in range(len(x)):
            if self.fault == "last token not written" and token == len(x) - 1:
                break
            chosen = self._experts_of(ids[token].tolist(), e)
            if self.fault == "tokens without experts not written" and not any(c is not None for c in chosen):
                continue
            total = torch.zeros(x.shape[1], dtype=torch.float64)
            for slot, expert in enumerate(chosen):
                if expert is None or served.get(expert, 0) >= most:
                    continue
                served[expert] = served.get(expert, 0) + 1
                weight = 1 / len(chosen) if self.fault == "weights forgotten" else float(weights[token, slot])
                total += weight * self._expert(x[token], e, expert).bfloat16()
            out[token] = (1.0 if self.fault == "no route scale" else e.route_scale) * total
        if self.fault == "changes x":
            x[0, 0] += 1
        elif self.fault == "changes a scale":
            e.s2[0, 0, 0] += 1
        return self.spoiled(out)


class Attention(_Faulty):
    kinds = ATTENTION_FAULTS

    def __init__(self, fault: str | None = None, lse: str = "plain") -> None:
        super().__init__(fault)
        self.lse = lse

    def _valid(self, rows: PagedRows, request: int, length: Tensor | None, is_extra: bool) -> Tensor:
        index = rows.index[request].long()
        most = len(index) if length is None else int(length[request])
        if self.fault == "length ignored" or (self.fault == "length ignored in extra" and is_extra):
            most = len(index)
        if self.fault == "top-k in whole sixteens":
            most = most // 16 * 16
        if self.fault == "reads before it masks":
            rows.data[index[index >= 0] // rows.page_size]
        index = index[:most]
        if self.fault == "an index of -1 is row 0":
            return index.clamp(min=0)
        if self.fault == "only -1 is no row":
            return index[index != -1]
        if self.fault == "stops at a negative index":
            return index[: int((torch.cat((index, torch.tensor([-1]))) < 0).int().argmax())]
        return index[index >= 0]

    def _rows(self, rows: PagedRows, index: Tensor, page_size: int) -> Tensor:
        """By address, from anywhere in the memory that the cache is a part of."""
        memory = rows.data.as_strided((rows.data.untyped_storage().nbytes(),), (1,), 0)
        stride = rows.data.shape[1]
        if self.fault == "next page":
            index = index + page_size
        page = torch.div(index, page_size, rounding_mode="trunc")
        offset = index - page * page_size
        start = (rows.data.storage_offset() + page * stride).unsqueeze(1)
        line = memory[start + offset.unsqueeze(1) * 576 + torch.arange(576)]
        footer = page_size * (584 if self.fault == "scales after 584 bytes a row" else 576)
        scales = memory[(start + footer + offset.unsqueeze(1) * 8 + torch.arange(8)).clamp(max=len(memory) - 1)]
        powers = self.power(scales)
        powers[scales == 255] = math.nan
        powers = powers[:, :1].expand(-1, 8) if self.fault == "one scale for all" else powers
        nope = line[:, :448].contiguous().view(torch.float8_e4m3fn).double()
        rope = line[:, 448:].contiguous().view(torch.bfloat16).double()
        nope = nope * powers[:, :7].repeat_interleave(64, 1)
        if self.fault == "padding byte scales the rope":
            rope = rope * powers[:, 7:]
        elif self.fault == "rope as E4M3, masked":
            rope = rope + 0 * line[:, 448:512].contiguous().view(torch.float8_e4m3fn).double()
        elif self.fault == "eight scales":
            rope = rope + 0 * powers[:, 7:]
        return torch.cat((nope, rope), 1)

    def _cache(self, call: AttentionCall, request: int) -> list[Tensor]:
        found = []
        for rows, is_extra in ((call.window, False), (call.extra, True)):
            if rows is None or self.fault == ("extra ignored" if is_extra else "window ignored"):
                continue
            length = rows.length
            if self.fault == "length is of the window" and is_extra and call.window.length is not None:
                length = call.window.length
            page_size = rows.page_size
            if self.fault == "pages of 64":
                page_size = 64
            elif self.fault == "window pages as the others" and call.extra is not None:
                page_size = call.extra.page_size
            found.append(self._rows(rows, self._valid(rows, request, length, is_extra), page_size))
        return found

    def _attend(self, q: Tensor, rows: Tensor, sink: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        scores = q.double() @ rows.T * (1.0 if self.fault == "no scale" else scale)
        lse = scores.logsumexp(-1)
        total = lse
        if sink is not None and self.fault != "no sink":
            total = torch.logaddexp(lse, sink.double())
            if self.fault == "sink counted twice":
                total = torch.logaddexp(total, sink.double())
        out = (scores - total[:, None]).exp().bfloat16().double() @ rows
        if sink is not None and self.fault == "sink gives a value":
            out += (sink.double() - total).exp()[:, None] * rows.mean()
        return out, total if self.fault == "lse with the sink" else lse

    def __call__(self, call: AttentionCall) -> Any:
        q = call.q
        out, lse = torch.empty_like(q), torch.empty(q.shape[:2])
        for request in range(len(q)):
            parts = self._cache(call, request)
            rows = torch.cat(parts)
            if len(rows) == 0:
                lse[request] = -math.inf
                if self.fault != "empty requests not written":
                    out[request] = math.nan if self.fault == "0 / 0 for an empty request" else 0
                continue
            out[request], lse[request] = self._attend(q[request], rows, call.sink, call.scale)
            if self.fault == "mean of two softmaxes" and len(parts) == 2 and all(map(len, parts)):
                out[request] = sum(self._attend(q[request], p, call.sink, call.scale)[0] for p in parts) / 2
        if self.fault == "last head not written":
            out[:, -1] = torch.empty_like(out[:, -1])
        elif self.fault == "changes q":
            q[0, 0, 0] += 1
        elif self.fault == "lse in bits":
            lse *= 1 / math.log(2)
        if self.lse == "with_sink" and call.sink is not None:
            lse = torch.logaddexp(lse, call.sink)
        return self.spoiled(out), None if self.fault == "no lse" else lse


class Made(Kernel):
    """A kernel of the registry whose runner is given."""

    def __init__(self, name: str, component: Component, runner: Any, role: Role = "optimized", **more: Any) -> None:
        super().__init__(name=name, component=component, role=role, summary="", module="", **more)
        object.__setattr__(self, "_runner", runner)

    def load(self) -> Any:
        if isinstance(self._runner, Exception):  # type: ignore[attr-defined]
            raise self._runner  # type: ignore[attr-defined]
        return self._runner  # type: ignore[attr-defined]


def made(component: Component, fault: str | None = None, **more: Any) -> Made:
    runner = Moe(fault) if component == "moe" else Attention(fault)
    return Made(fault or "right", component, runner, **more)
