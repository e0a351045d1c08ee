"""How each engine tells about itself: one reader an engine, from its own endpoints to the same few facts.

`identify` walks a ladder from the most telling answer to the least: llama.cpp's Server header, `/server_info`
(SGLang, our own server, vLLM in development mode), `/version` (vLLM), the OpenAPI page (transformers serve), else
generic. It never raises: what an engine does not tell stays None with the reason in `missing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dsv4bench.host.redact import redact
from dsv4bench.records.server import Engine
from dsv4bench.server.calls import Caller, Reply
from dsv4bench.server.front_end import ROLES, FrontEnd, disaggregated
from dsv4bench.server.models import ModelList, whole

# Values that change by themselves: in a record of arguments they would look like levers.
_VOLATILE = frozenset(
    {
        "internal_states",
        "instance_id",
        "media_marker",
        "last_gen_throughput",
        "VLLM_INSTANCE_ID",
        "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME",  # drawn anew at each start
    }
)


@dataclass(slots=True)
class Told:
    """What a server told so far; mutable, and only alive during detection."""

    engine: Engine
    version: str | None = None
    model_name: str | None = None
    model_path: str | None = None
    tokenizer: str | None = None
    max_model_len: int | None = None
    vocab_size: int | None = None
    args: dict[str, Any] | None = None
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    front_end: FrontEnd | None = None


def identify(caller: Caller, first: Reply, listed: ModelList) -> Told:
    """Name the engine and read what it tells; `first` is the answer to `/v1/models`."""
    owner = (listed.owned_by or "").lower()
    if "llama.cpp" in first.headers.get("server", "").lower() or owner == "llamacpp":
        return _llamacpp(caller)
    info, why_no_info = ask_server_info(caller)
    if info is not None and info.get("engine") == Engine.DSV4BENCH:
        return _own(info)
    if info is not None and _is_sglang(info):
        return _sglang(caller, info)
    if owner == "sglang":
        told = _sglang(caller, {})
        told.missing |= {"version": why_no_info, "args": why_no_info}
        return told
    version = caller.ask("/version")
    found = version.json() if version.ok else None
    said = found.get("version") if isinstance(found, dict) else None
    if owner == "vllm" or (isinstance(said, str) and owner == "") or (info or {}).get("vllm_config"):
        return _vllm(caller, said, version, info, why_no_info)
    told = Told(engine=Engine.GENERIC, version=said if isinstance(said, str) else None)
    if _is_transformers(caller):
        told.engine = Engine.TRANSFORMERS
    told.missing["args"] = "this kind of server does not tell them"
    if told.version is None:
        told.missing["version"] = version.why_not()
    return told


def ask_server_info(caller: Caller) -> tuple[dict[str, Any] | None, str]:
    """The raw `/server_info` document (older SGLang: `/get_server_info`), or None and why."""
    reply = caller.ask("/server_info")
    if reply.status == 404:
        older = caller.ask("/get_server_info")
        reply = older if older.ok else reply
    found = reply.json() if reply.ok else None
    return (found, "") if isinstance(found, dict) else (None, reply.why_not())


def arguments(engine: Engine, info: dict[str, Any]) -> dict[str, Any]:
    """The arguments within a `/server_info` document: redacted, and without what changes by itself."""
    if engine is Engine.DSV4BENCH:
        own = info.get("args")
        kept = dict(own) if isinstance(own, dict) else {}
        kept |= {k: info[k] for k in ("preset", "kernels") if k in info}
    elif engine is Engine.VLLM:
        config = info.get("vllm_config")
        kept = dict(config) if isinstance(config, dict) else {"vllm_config": config}
        kept["env"] = info.get("vllm_env")
    else:
        kept = info
    clean: dict[str, Any] = redact(_without_volatile(kept))
    return clean


def _own(info: dict[str, Any]) -> Told:
    return Told(
        engine=Engine.DSV4BENCH,
        version=_text(info.get("version")),
        vocab_size=whole(info.get("vocab_size")),
        max_model_len=whole(info.get("max_model_len")),
        model_name=_text(info.get("model")),
        args=arguments(Engine.DSV4BENCH, info),
    )


def _is_sglang(info: dict[str, Any]) -> bool:
    return "internal_states" in info or ("version" in info and ("model_path" in info or "tp_size" in info))


def _sglang(caller: Caller, info: dict[str, Any]) -> Told:
    told = Told(engine=Engine.SGLANG, args=arguments(Engine.SGLANG, info) if info else None)
    told.front_end = disaggregated(info)
    if told.front_end is not None:
        info = [w for role in ROLES for w in _dicts(info.get(role))][-1] | info
    mode = info.get("disaggregation_mode")
    if mode in ("prefill", "decode"):
        told.notes.append(f"a {mode} worker of a prefill/decode deployment")
    model = caller.ask("/model_info")
    model = caller.ask("/get_model_info") if model.status == 404 else model
    found = model.json() if model.ok else None
    about = found if isinstance(found, dict) else {}
    told.version = _text(info.get("version"))
    told.model_path = _text(info.get("model_path")) or _text(about.get("model_path"))
    told.model_name = _text(info.get("served_model_name")) or told.model_path
    told.tokenizer = _text(info.get("tokenizer_path")) or _text(about.get("tokenizer_path"))
    told.max_model_len = whole(info.get("context_length")) or whole(info.get("max_context_length"))
    told.vocab_size = whole(about.get("vocab_size"))
    return told


def _vllm(caller: Caller, said: Any, version: Reply, info: dict[str, Any] | None, why_no_info: str) -> Told:
    told = Told(engine=Engine.VLLM, version=_text(said))
    if told.version is None:
        told.missing["version"] = version.why_not()
    if info is None or "vllm_config" not in info:
        told.missing["args"] = f"{why_no_info}; start vLLM with VLLM_SERVER_DEV_MODE=1 to have its arguments recorded"
        return told
    structured = caller.ask("/server_info?config_format=json").json()
    if isinstance(structured, dict) and isinstance(structured.get("vllm_config"), dict):
        info = structured
    told.args = arguments(Engine.VLLM, info)
    model = told.args.get("model_config")
    if isinstance(model, dict):
        told.model_path = _text(model.get("model"))
        told.tokenizer = _text(model.get("tokenizer"))
        told.max_model_len = whole(model.get("max_model_len"))
    return told


def _llamacpp(caller: Caller) -> Told:
    told = Told(engine=Engine.LLAMACPP)
    reply = caller.ask("/props")
    props = reply.json() if reply.ok else None
    if not isinstance(props, dict):
        told.missing |= {"version": reply.why_not(), "args": reply.why_not()}
        return told
    told.version = _text(props.get("build_info"))
    told.model_path = _text(props.get("model_path"))
    told.model_name = _text(props.get("model_alias")) or told.model_path
    settings = props.get("default_generation_settings")
    settings = settings if isinstance(settings, dict) else {}
    told.max_model_len = whole(settings.get("n_ctx"))
    kept = {k: props[k] for k in ("total_slots", "model_alias", "model_path", "model_ftype") if k in props}
    told.args = redact(kept | {"n_ctx": told.max_model_len, "sampling": settings.get("params")})
    return told


def _is_transformers(caller: Caller) -> bool:
    """`transformers serve` has no endpoint that names it; its OpenAPI page lists a /load_model of its own."""
    page = caller.ask("/openapi.json").json()
    paths = page.get("paths") if isinstance(page, dict) else None
    return isinstance(paths, dict) and "/load_model" in paths and "/v1/chat/completions" in paths


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_volatile(v) for k, v in value.items() if k not in _VOLATILE}
    if isinstance(value, list):
        return [_without_volatile(v) for v in value]
    return value


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
