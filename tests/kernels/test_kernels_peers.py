"""Peers: what is missing is named in one line, and what can be run without a GPU is right."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dsv4bench.errors import UsageError
from dsv4bench.kernels import mla_cache, reference
from dsv4bench.kernels.calls import AttentionCall, MoeCall, PagedRows
from dsv4bench.kernels.cases import AttentionShape, MoeShape, make_attention, make_moe
from dsv4bench.kernels.comparison import compare
from dsv4bench.kernels.peers.external import ExternalPeer, load_peers
from dsv4bench.kernels.peers.flash_mla import FlashMla, paged
from dsv4bench.kernels.peers.grouped_mm import GroupedMM
from dsv4bench.kernels.peers.libraries import need, take
from dsv4bench.kernels.registry import KERNELS

PEERS = [k for k in KERNELS if k.role == "peer"]
FILE = """
from dsv4bench.kernels.peers.external import ExternalPeer
def runner(): return "mine"
PEERS = [ExternalPeer("mine", "moe", runner, "a kernel of my own")]
"""


@pytest.mark.parametrize("name", ["marlin", "triton_kernels", "flash_mla", "flashinfer_moe", "flashinfer_mla"])
def test_a_library_that_is_missing_is_named_with_what_to_install(name: str) -> None:
    package = "flashinfer" if name.startswith("flashinfer") else "vllm"
    if importlib.util.find_spec(package) is not None or importlib.util.find_spec("flash_mla") is not None:
        pytest.skip(f"{package} is installed here")
    (kernel,) = (k for k in PEERS if k.name == name)
    with pytest.raises(UsageError, match=rf"^{name}: .*{package}.* cannot be imported .*No module named") as failure:
        kernel.load()
    assert failure.value.hint.startswith("needs ") and "\n" not in failure.value.message


def test_a_library_that_fails_inside_is_as_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_a_library.py").write_text("raise OSError('undefined symbol: _ZN3c10\\nand more')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"OSError: undefined symbol: _ZN3c10\)$"):
        need("half_a_library", "peer", "a whole one")
    with pytest.raises(UsageError, match="math has no nothing"):
        take(__import__("math"), "nothing", "peer", "another version")


def test_peers_have_no_builds_and_carry_the_hash_of_their_text() -> None:
    assert len(PEERS) == 6
    assert all(k.builds() == () and len(k.code_hash()) == 12 for k in PEERS)
    assert {k.component for k in PEERS} == {"moe", "attention"}


@pytest.mark.parametrize("routing", ["uniform", "some -1", "a token of -1", "skewed"])
def test_grouped_mm_computes_the_reference(routing: Any) -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no grouped GEMM")
    shape = MoeShape(tokens=5, experts=8, top_k=2, hidden=64, inner=32, routing=routing)
    call: MoeCall = make_moe(shape, 3)
    runner = GroupedMM()
    out = runner(call.x, call.ids, call.weights, runner.prepare(call.experts))
    assert compare(out, None, reference.moe(call)).why is None


def test_flash_mla_sees_the_pages_as_they_lie() -> None:
    size = 4
    data = torch.randint(0, 256, (3, mla_cache.page_bytes(size)), dtype=torch.uint8)
    seen = paged(PagedRows(data, size, torch.zeros(1, 1, dtype=torch.int32), None))
    assert seen.shape == (3, size, 1, 584) and seen.data_ptr() == data.data_ptr()
    assert seen.stride() == (mla_cache.page_bytes(size), 584, 584, 1)


class Interface:
    """FlashMLA's Python interface, as far as it is called."""

    def __init__(self) -> None:
        self.plans: list[object] = []

    def get_mla_metadata(self) -> tuple[object, None]:
        self.plans.append(object())
        return self.plans[-1], None

    def flash_mla_with_kvcache(self, **given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.given = SimpleNamespace(**given)
        batch, one, heads, width = given["q"].shape
        return torch.zeros(batch, one, heads, width), torch.zeros(batch, heads, one)


def attention(batch: int = 2, heads: int = 64, **more: Any) -> AttentionCall:
    return make_attention(AttentionShape(batch=batch, heads=heads, window=4, extra=8, **more), 0)


def test_flash_mla_keeps_one_plan_a_shape() -> None:
    interface = Interface()
    runner = FlashMla(interface)
    out, lse = runner(attention(lengths="absent"))
    runner(attention(lengths="absent"))
    runner(attention(batch=3, lengths="absent"))
    assert len(interface.plans) == 2 and out.shape == (2, 64, 512) and lse.shape == (2, 64)
    assert interface.given.indices.shape == (3, 1, 4) and interface.given.extra_indices_in_kvcache.shape == (3, 1, 8)


def test_flash_mla_plans_anew_for_lengths_and_where_it_is_asked_to() -> None:
    interface = Interface()
    for call, keep in ((attention(), True), (attention(lengths="absent"), False)):
        before = len(interface.plans)
        runner = FlashMla(interface, keep)
        runner(call)
        runner(call)
        assert len(interface.plans) == before + 2


def test_flash_mla_refuses_heads_that_it_does_not_compute() -> None:
    with pytest.raises(UsageError, match="8 heads; it computes 64 or 128"):
        FlashMla(Interface())(attention(heads=8))


def test_a_file_of_peers_is_read_and_hashed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    (peer,) = load_peers(file)
    assert (peer.name, peer.component, peer.role, peer.load()) == ("mine", "moe", "peer", "mine")
    before = peer.code_hash()
    file.write_text(FILE + "# changed\n")
    assert load_peers(file)[0].code_hash() != before
    assert str(tmp_path) not in sys.path


def test_a_file_of_peers_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_peers.py").write_text("def runner(): return 'neighbour'")
    (tmp_path / "mine.py").write_text(
        FILE.replace('def runner(): return "mine"', "from neighbour_of_peers import runner")
    )
    assert load_peers(tmp_path / "mine.py")[0].load() == "neighbour"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no PEERS"),
        ("PEERS = []", "defines no PEERS"),
        ("PEERS = [1]", "PEERS holds a int"),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def (", "SyntaxError"),
        (FILE.replace('"mine"', '"my kernel"'), "'my kernel' is no name"),
        (FILE.replace('"moe"', '"router"'), "component 'router' of mine"),
        (FILE.replace("runner, ", "3, "), "the runner of mine cannot be called"),
        (FILE.replace('"a kernel of my own"', "rel_fro_limit=0"), "rel_fro_limit 0 of mine"),
        (FILE.replace('"a kernel of my own"', 'rel_fro_limit="1"'), "rel_fro_limit '1' of mine"),
        (FILE.replace('"a kernel of my own"', 'min_sm="sm_90"'), "min_sm 'sm_90' of mine"),
        (FILE.replace('"mine"', "3"), "3 is no name"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        (FILE + "PEERS *= 2", "the name 'mine' is taken"),
    ],
)
def test_a_file_of_peers_that_is_wrong_is_named_with_the_fault(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UsageError) as failure:
        load_peers(file)
    assert message in failure.value.message and str(file) in failure.value.message


def test_a_peer_cannot_take_the_name_of_a_registered_kernel(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(UsageError, match="the name 'mine' is taken"):
        load_peers(tmp_path / "mine.py", taken=["mine"])
    with pytest.raises(UsageError, match="no such file"):
        load_peers(tmp_path / "nowhere.py")


def test_a_peer_is_what_it_is_given() -> None:
    peer = ExternalPeer("mine", "attention", lambda: 1, min_sm=120)
    assert peer.supports(120) and not peer.supports(90)


def test_the_file_of_vllms_parts_loads_and_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSV4BENCH_PEER_PARTS", raising=False)
    found = load_peers(Path(__file__).parents[2] / "benchmarks" / "vllm_parts.py", [k.name for k in KERNELS])
    assert [p.name for p in found if p.component == "attention"] == [
        "vllm_flash_mla",
        "vllm_flash_mla+planner",
        "sgl_flash_mla",
    ]
    for peer in found:
        with pytest.raises(UsageError, match="DSV4BENCH_PEER_PARTS names no folder"):
            peer.load()
