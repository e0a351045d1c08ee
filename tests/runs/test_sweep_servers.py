"""What a sweep makes of servers as they are: short outputs, caches, speculation, refusals, keys, failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai_server import Behaviour, serve
from sweeping import Sweep, sweep

from dsv4bench.errors import BenchError, MeasuredBad, UsageError
from dsv4bench.records.cell import Cell, Invalid
from dsv4bench.records.experiment import Status
from dsv4bench.records.progress import Progress
from dsv4bench.records.request import TokenSource
from dsv4bench.records.workload import Slo
from dsv4bench.runs.probe import REFUSED_FIELD
from dsv4bench.runs.sweep import largest_within_slo
from dsv4bench.store.store import Store


def one_level(behaviour: Behaviour, out: Path, **options: Any) -> tuple[Cell, Sweep]:
    with serve(behaviour) as server:
        swept = sweep(server.url, out, **{"concurrency": [2], **options})
    (cell,) = swept.cells
    return cell, swept


def refusal(behaviour: Behaviour, out: Path, **options: Any) -> BenchError:
    """The error of a sweep that cannot begin; then nothing may lie in the results folder."""
    with serve(behaviour) as server, pytest.raises(BenchError) as failed:
        sweep(server.url, out, **options)
    assert Store(out).list() == []
    return failed.value


# --- the level's stamp ---------------------------------------------------------------------------------------


def test_short_outputs_make_a_level_invalid(tmp_path: Path) -> None:
    c, swept = one_level(Behaviour(max_output=3), tmp_path)
    assert c.invalid is Invalid.SHORT_OUTPUT and c.n_short == 4 and c.output_tokens == 12
    assert "does not honour ignore_eos" in str(c.invalid_why)
    assert swept.result.status is Status.COMPLETE and swept.result.error is None  # shown, not an error


def test_prompts_of_another_length_make_a_level_invalid(tmp_path: Path) -> None:
    c, _ = one_level(Behaviour(prompt_factor=5), tmp_path)
    assert c.invalid is Invalid.PROMPT_LENGTH and c.isl_mean == 80.0 and c.isl == 16
    assert c.invalid_why == "the server counted 80 prompt tokens for ISL 16"


def test_prefix_hits_make_a_level_invalid(tmp_path: Path) -> None:
    c, _ = one_level(Behaviour(hit_frac=0.5), tmp_path)
    assert c.invalid is Invalid.CACHE_CONTAMINATED and c.prefix_hit_frac == 0.5


# --- the server's own view -----------------------------------------------------------------------------------


def test_acceptance_is_from_the_counters_of_the_level(tmp_path: Path) -> None:
    c, _ = one_level(Behaviour(drafts=2, tokens_per_chunk=3), tmp_path, osl=9)
    assert c.accept_length == 3.0 and c.tokens_per_chunk == 3.0
    assert c.server_output_tokens == 36 and c.kv_usage_max_frac == 0.25
    assert c.server_ttft_mean_s == pytest.approx(0.008)


def test_in_flight_never_exceeds_the_level(tmp_path: Path) -> None:
    with serve() as server:
        (c,) = sweep(server.url, tmp_path, concurrency=[3], requests=9, warmup=True).cells
        assert server.peak == c.peak_in_flight == 3
    assert c.accept_length is None and c.prefix_hit_frac == 0.0  # no speculation; a counter that stood still


def test_a_server_that_tells_nothing_has_no_view_and_an_assumed_vocabulary(tmp_path: Path) -> None:
    c, swept = one_level(Behaviour(metrics=False, engine="generic"), tmp_path, vocab=None)
    assert c.n_ok == 4 and c.launch == "L0"
    assert (c.server_output_tokens, c.prefix_hit_frac, c.kv_usage_max_frac, c.server_running_mean) == (None,) * 4
    assert swept.stored.experiment.launches == {"L0": None}
    w = swept.stored.experiment.workload
    assert (w.vocab_size, w.vocab_source) == (32_000, "assumed")
    assert any("give --vocab N" in note for note in swept.result.notes)


def test_tokens_without_usage_are_a_lower_bound(tmp_path: Path) -> None:
    c, _ = one_level(Behaviour(usage=False, tokens_per_chunk=2), tmp_path)
    assert c.token_source is TokenSource.CHUNKS and c.output_tokens == 8  # 16 in truth
    assert c.n_short == 0 and c.invalid is not Invalid.SHORT_OUTPUT  # a lower bound proves nothing
    assert "tokens counted by chunks: a lower bound" in c.notes
    assert c.prompt_tokens is None and c.isl_mean is None


# --- what the server takes -----------------------------------------------------------------------------------


def test_refused_fields_are_dropped_and_said(tmp_path: Path) -> None:
    with serve(Behaviour(refused_fields={"ignore_eos", "stream_options"})) as server:
        swept = sweep(server.url, tmp_path, concurrency=[2])
        assert all("ignore_eos" not in b and "stream_options" not in b for b in server.bodies)
    assert swept.stored.experiment.workload.sent_fields == [] and not swept.stored.experiment.workload.ignore_eos
    assert "this server does not take ignore_eos: outputs may be short" in swept.result.notes
    assert swept.cells[0].token_source is TokenSource.CHUNKS and swept.cells[0].n_ok == 4


def test_a_server_that_takes_no_ids_gets_text(tmp_path: Path) -> None:
    with serve(Behaviour(takes_ids=False)) as server:
        swept = sweep(server.url, tmp_path, concurrency=[2], isl=[64])
        texts = [b["prompt"] for b in server.bodies]
    assert all(isinstance(t, str) for t in texts)
    w = swept.stored.experiment.workload
    assert (w.dataset, w.prompt_kind, w.vocab_size) == ("chat", "text", None) and w.dataset_sha256
    assert "this server takes no token ids: text prompts, ISL is approximate" in swept.result.notes
    assert swept.cells[0].invalid is not Invalid.PROMPT_LENGTH


def test_ids_that_were_asked_for_are_not_replaced(tmp_path: Path) -> None:
    e = refusal(Behaviour(takes_ids=False), tmp_path, dataset="random")
    assert isinstance(e, UsageError) and "prompt must be a string" in e.message


def test_texts_are_sized_by_the_servers_own_tokenizer(tmp_path: Path) -> None:
    """The fake server counts one token in four characters of JSON; another factor must come out nearer, too."""
    with serve(Behaviour(prompt_factor=2)) as server:
        # a fixed seed: passages of the corpus differ in language, and with it in characters a token
        asked = {"concurrency": [1], "endpoint": "chat", "isl": [200], "dataset": "chat", "seed": 7}
        (c,) = sweep(server.url, tmp_path, **asked).cells
    assert c.isl_mean is not None and abs(c.isl_mean - 200) < 40


def test_a_file_of_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"question {i}"}) + "\n" for i in range(3)))
    with serve() as server:
        swept = sweep(server.url, tmp_path / "out", concurrency=[1], dataset=str(path))
        asked = {b["prompt"] for b in server.bodies}
    assert asked == {"question 0", "question 1", "question 2"}
    w = swept.stored.experiment.workload
    assert w.dataset == "prompts.jsonl" and w.prompt_kind == "text" and w.dataset_sha256
    assert "the file has fewer prompts than requests: they repeat" in swept.cells[0].notes


def test_an_unknown_vocabulary_is_asked_for(tmp_path: Path) -> None:
    vocab = 32_001
    with serve(Behaviour(vocab=vocab, itl_s=0.0005, ttft_s=0.0)) as server:
        swept = sweep(server.url, tmp_path, concurrency=[1], vocab=None, requests=2)
        ids = [i for b in server.bodies if len(b["prompt"]) == 16 for i in b["prompt"]]
    w = swept.stored.experiment.workload
    assert (w.vocab_size, w.vocab_source) == (vocab, "probed")
    assert vocab // 2 < max(ids) < vocab


def test_an_id_out_of_the_vocabulary_says_what_to_do(tmp_path: Path) -> None:
    e = refusal(Behaviour(vocab=10), tmp_path, vocab=50_000, dataset="random")
    assert isinstance(e, UsageError) and "out of vocabulary" in e.message and "--vocab N" in e.hint


# --- refusals before anything is measured -------------------------------------------------------------------


def test_a_missing_key(tmp_path: Path) -> None:
    e = refusal(Behaviour(key="sk-right"), tmp_path)
    assert isinstance(e, UsageError) and "DSV4BENCH_API_KEY" in e.hint


def test_a_wrong_key_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", "sk-abcdef0123456789wrong")
    e = refusal(Behaviour(key="sk-right"), tmp_path)
    assert "wrong" not in e.message + e.hint
    echo = Behaviour(error_status=401, error_text="Incorrect API key provided: sk-abcdef0123456789wrong")
    e = refusal(echo, tmp_path)  # the list of models was open to all
    assert isinstance(e, UsageError) and "Incorrect API key" in e.message and "wrong" not in e.message + e.hint
    assert "DSV4BENCH_API_KEY" in e.hint


def test_the_right_key_opens_and_is_stored_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4BENCH_API_KEY", "sk-abcdef0123456789right")
    with serve(Behaviour(key="sk-abcdef0123456789right", error_status=500, fail_from=5,
                         error_text="key sk-abcdef0123456789right is tired")) as server:  # fmt: skip
        swept = sweep(server.url, tmp_path, concurrency=[1])
        assert {h["Authorization"] for h in server.headers} == {"Bearer sk-abcdef0123456789right"}
    assert swept.cells[0].n_err == 2 and "0123456789right" not in str(swept.cells[0].error_example)
    for file in (f for f in tmp_path.rglob("*") if f.is_file()):
        assert b"0123456789right" not in file.read_bytes()


def test_an_endpoint_that_is_not_there(tmp_path: Path) -> None:
    e = refusal(Behaviour(endpoints={"chat/completions"}), tmp_path)
    assert isinstance(e, UsageError) and "http_404" in e.message and "--endpoint chat" in e.hint
    e = refusal(Behaviour(endpoints={"completions"}), tmp_path, endpoint="chat")
    assert "--endpoint completions" in e.hint


def test_a_model_that_is_not_served(tmp_path: Path) -> None:
    e = refusal(Behaviour(models=["a", "b"]), tmp_path, model="c")
    assert "'c'" in e.message and "a, b" in e.message


def test_lengths_that_the_model_cannot_hold(tmp_path: Path) -> None:
    e = refusal(Behaviour(max_model_len=30), tmp_path, isl=[16, 28])
    assert isinstance(e, UsageError) and "ISL 28 + OSL 4 = 32 tokens do not fit the model's 30" in e.message


def test_a_server_that_never_answers_a_request(tmp_path: Path) -> None:
    e = refusal(Behaviour(hang_posts=True), tmp_path, timeout_s=0.3)
    assert isinstance(e, MeasuredBad) and "stalled" in e.message and "--timeout" in e.hint


def test_a_server_that_fails_the_probe(tmp_path: Path) -> None:
    e = refusal(Behaviour(error_status=503), tmp_path)
    assert isinstance(e, MeasuredBad) and "http_503: out of memory" in e.message


def test_a_refused_field_is_told_by_these_statuses() -> None:
    assert REFUSED_FIELD == ("http_400", "http_422")


# --- failures in a level -------------------------------------------------------------------------------------


def test_some_failures_are_counted_by_kind(tmp_path: Path) -> None:
    c, swept = one_level(Behaviour(error_status=429, fail_from=5), tmp_path, concurrency=[1])
    assert (c.n_sent, c.n_ok, c.n_err, c.errors) == (4, 2, 2, {"http_429": 2})
    assert c.error_example == "out of memory" and c.output_tokens == 8
    assert swept.result.status is Status.COMPLETE


def test_every_request_of_a_level_fails(tmp_path: Path) -> None:
    with serve(Behaviour(error_status=500, fail_from=7)) as server:
        swept = sweep(server.url, tmp_path, concurrency=[1, 2], slo=Slo(ttft_s=9.0))
    good, bad = swept.cells
    assert good.n_ok == 4 and bad.n_ok == 0 and bad.invalid is Invalid.ALL_FAILED
    assert bad.output_tok_s is None and bad.ttft_p50_s is None and bad.slo_frac == 0.0
    assert isinstance(swept.result.error, MeasuredBad) and "r0-c2-i16" in swept.result.error.message
    assert "out of memory" in swept.result.error.message
    assert swept.result.status is swept.stored.experiment.status is Status.FAILED


@pytest.mark.parametrize("die_at", [7, 10])  # three are the probe, four the first level's
def test_a_server_that_dies_keeps_the_levels_before(tmp_path: Path, die_at: int) -> None:
    """In the first wave of the second level, and in the last one, when nothing is sent any more."""
    with serve(Behaviour(die_at=die_at)) as server:
        swept = sweep(server.url, tmp_path, concurrency=[1, 2], requests=4)
    assert isinstance(swept.result.error, MeasuredBad) and swept.result.status is Status.FAILED
    assert "Connection refused" in swept.result.error.message
    assert swept.cells[0].n_ok == 4 and swept.cells[0].invalid is not Invalid.INTERRUPTED
    assert swept.cells[1].invalid is Invalid.INTERRUPTED and swept.cells[1].invalid_why == "the server went away"
    assert swept.cells[1].n_err > 0
    assert [c.cell for c in swept.stored.cells()] == ["r0-c1-i16", "r0-c2-i16"]
    assert swept.stored.done() == {"r0-c1-i16"}  # the broken level is measured again


# --- launches ------------------------------------------------------------------------------------------------


def test_launches_are_told_apart_by_the_servers_start(tmp_path: Path) -> None:
    """At the second level the metrics fail for a moment; at the third the server is started anew."""
    with serve() as server:

        def fault(p: Progress) -> None:
            server.behaviour.metrics = p.level_index != 1
            if p.level_index == 2:
                server.behaviour.start_time = 1_800_000_000.0

        swept = sweep(server.url, tmp_path, fault, concurrency=[1, 2, 3], warmup=True)
    assert [c.launch for c in swept.cells] == ["L0", "L0", "L1"]
    assert swept.stored.experiment.launches == {"L0": 1_700_000_000.0, "L1": 1_800_000_000.0}
    assert swept.result.notes == ["the server was started anew before launch L1"]
    assert "the server was started anew: this is launch L1" in swept.said


# --- SLO -----------------------------------------------------------------------------------------------------


def test_an_invalid_or_partly_failing_level_is_not_within(tmp_path: Path) -> None:
    c, _ = one_level(Behaviour(), tmp_path, slo=Slo(ttft_s=1e-6))
    assert (c.slo_frac, c.goodput_req_s) == (0.0, 0.0) and largest_within_slo([c]) is None
    c = _at(c, slo_frac=1.0)
    cells = {n: _at(c, concurrency=n, invalid=None) for n in (1, 2, 4, 8)}
    assert largest_within_slo(list(cells.values())) == 8
    cells[8] = _at(cells[8], invalid=Invalid.CLIENT_SATURATED)
    cells[4] = _at(cells[4], slo_frac=0.98)
    assert largest_within_slo(list(cells.values())) == 2
    assert largest_within_slo([*cells.values(), _at(cells[2], repeat=1, slo_frac=0.5)]) == 1
    assert largest_within_slo([_at(c, slo_frac=None)]) is None and largest_within_slo([]) is None


def _at(c: Cell, **fields: object) -> Cell:
    return msgspec.structs.replace(c, **fields)
