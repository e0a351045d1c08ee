"""The HTTP side, on starlette: OpenAI's endpoints, and what a benchmark asks a server for.

    POST /v1/completions, /v1/chat/completions      generation, streaming and not
    GET  /v1/models /health /metrics /server_info   who is there, and how it is doing
    POST /flush_cache /start_profile /stop_profile  control, in SGLang's dialect (GET works too)

`create_app` starts the engine's thread with the application and stops it with it. A client that goes away frees
its slot. While the server drains, new requests get 503.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from dsv4bench import __version__
from dsv4bench.engine.config import EngineConfig
from dsv4bench.engine.loop import EngineDead, EngineLoop, QueueFull
from dsv4bench.engine.mailbox import Mailboxes
from dsv4bench.engine.profiler import ProfileRequest
from dsv4bench.engine.protocol import ApiError, Ask, RequestReader
from dsv4bench.engine.responses import Responder
from dsv4bench.engine.sequence import Sequence
from dsv4bench.engine.speculation import NOTICE
from dsv4bench.engine.tokenizer import ToyTokenizer
from dsv4bench.errors import BenchError


def create_app(engine: EngineLoop) -> Starlette:
    """The application around one engine."""
    service = Service(engine)
    routes = [
        Route("/v1/completions", service.completions, methods=["POST"]),
        Route("/v1/chat/completions", service.chat, methods=["POST"]),
        Route("/v1/models", service.models),
        Route("/health", service.health),
        Route("/metrics", service.metrics),
        Route("/server_info", service.server_info),
        Route("/flush_cache", service.flush_cache, methods=["GET", "POST"]),
        Route("/start_profile", service.start_profile, methods=["GET", "POST"]),
        Route("/stop_profile", service.stop_profile, methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, lifespan=service.lifespan, exception_handlers={ApiError: _api_error})
    app.state.service = service
    return app


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, status_code=error.status)


@dataclass
class Service:
    """The handlers, and what they share."""

    engine: EngineLoop
    draining: bool = False  # set by the server when it is asked to stop
    mailboxes: Mailboxes = field(init=False)
    started_s: float = field(default_factory=time.time)
    _accepted: int = 0

    def __post_init__(self) -> None:
        self.config: EngineConfig = self.engine.config
        self.vocab_size = self.config.dims.vocab_size
        self.tokenizer = ToyTokenizer(self.vocab_size)
        self.reader = RequestReader(
            self.tokenizer,
            self.config.served_model_name,
            self.config.max_model_len,
            logprobs=self.config.tells_logprobs,
        )

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.mailboxes = Mailboxes(asyncio.get_running_loop())
        self.engine.start(self.mailboxes.deliver)
        yield
        await asyncio.to_thread(self.engine.stop)

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, self.reader.completion(await request.body()))

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, self.reader.chat(await request.body()))

    async def _generate(self, request: Request, ask: Ask) -> Response:
        responder = Responder(
            ask, self.config.served_model_name, self.tokenizer, speculation=self.config.speculation is not None
        )
        self._submit(ask, responder.request_id)
        if ask.stream:
            return StreamingResponse(self._stream(responder), media_type="text/event-stream")
        return await self._whole(request, responder)

    def _submit(self, ask: Ask, request_id: str) -> None:
        if self.draining:
            raise ApiError(503, "the server is shutting down", kind="ServiceUnavailableError")
        if not self.engine.fits(len(ask.prompt) + ask.sampling.max_tokens):
            raise ApiError(400, "the request needs more KV cache than this server has", "max_tokens")
        self._accepted += 1
        given = ask.sampling.seed
        # Masked because torch wants a seed of at most 64 bits, and clients send any integer.
        seed = (given if given is not None else self.config.seed * 1_000_003 + self._accepted) & (2**63 - 1)
        self.mailboxes.open(request_id)
        try:
            self.engine.submit(Sequence(request_id, ask.prompt, ask.sampling, seed, time.monotonic()))
        except (QueueFull, EngineDead) as error:
            self.mailboxes.close(request_id)
            if isinstance(error, QueueFull):
                waiting = self.config.queue_limit
                text = f"the queue is full: {self.config.max_running} running, {waiting} waiting"
                raise ApiError(429, text, kind="RateLimitError") from None
            raise ApiError(500, f"the engine is dead: {error}", kind="InternalServerError") from None

    async def _stream(self, responder: Responder) -> AsyncIterator[bytes]:
        finished = False
        try:
            if opening := responder.opening():
                yield opening
            async for delivery in self.mailboxes.read(responder.request_id):
                finished = delivery.finish is not None
                if delivery.error is not None:
                    error = ApiError(500, f"the engine has failed: {delivery.error}", kind="InternalServerError")
                    yield responder.failure(error.body)
                    return
                yield responder.chunk(delivery)
            yield responder.closing()
        finally:
            self._leave(responder.request_id, finished=finished)

    async def _whole(self, request: Request, responder: Responder) -> Response:
        request_id, finished = responder.request_id, False
        gone = asyncio.ensure_future(_disconnected(request))
        collect = asyncio.ensure_future(self._collect(request_id))
        try:
            await asyncio.wait({gone, collect}, return_when=asyncio.FIRST_COMPLETED)
            if not collect.done():
                return Response(status_code=499)  # nobody reads it
            finished = True
            deliveries = collect.result()
            if deliveries[-1].error is not None:
                text = f"the engine has failed: {deliveries[-1].error}"
                raise ApiError(500, text, kind="InternalServerError")
            return Response(responder.whole(deliveries), media_type="application/json")
        finally:
            gone.cancel()
            collect.cancel()
            self._leave(request_id, finished=finished)

    async def _collect(self, request_id: str) -> list[Any]:
        return [delivery async for delivery in self.mailboxes.read(request_id)]

    def _leave(self, request_id: str, *, finished: bool) -> None:
        self.mailboxes.close(request_id)
        if not finished:
            self.engine.cancel(request_id)

    async def models(self, _: Request) -> Response:
        name = self.config.served_model_name
        model = {
            "id": name,
            "object": "model",
            "created": int(self.started_s),
            "owned_by": "dsv4bench",
            "root": name,
            "max_model_len": self.config.max_model_len,
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, _: Request) -> Response:
        if self.draining or self.engine.failure:
            return PlainTextResponse(self.engine.failure or "shutting down", status_code=503)
        return Response()

    async def metrics(self, _: Request) -> Response:
        return Response(self.engine.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def server_info(self, _: Request) -> Response:
        config, speculation = self.config, self.config.speculation
        info: dict[str, Any] = {
            "engine": "dsv4bench",
            "version": __version__,
            "weights": "random",
            "model": config.served_model_name,
            "preset": config.preset,
            "dims": msgspec.to_builtins(config.dims),
            "kernels": config.kernels_label,
            "prefill_kernels": "optimized",
            "live": dataclasses.asdict(self.engine.live),
            "device": config.device,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.tokenizer.eos_id,
            "max_model_len": config.max_model_len,
            "prefix_cache": False,
            "speculation": None,
            "args": config.as_args(),
        }
        if speculation:
            info["speculation"] = {
                "kind": "synthetic",
                "note": NOTICE,
                "tokens_verified": speculation.tokens,
                "draft_tokens": speculation.drafts,
                "accept_probability": speculation.accept,
                "draft_cost": "none",
            }
        return JSONResponse(info)

    async def flush_cache(self, _: Request) -> Response:
        return PlainTextResponse("Nothing to flush: this server keeps no prefix cache.\n")

    async def start_profile(self, request: Request) -> Response:
        raw = await request.body()
        try:
            wanted = msgspec.json.decode(raw, type=ProfileRequest) if raw else ProfileRequest()
        except msgspec.DecodeError as error:
            raise ApiError(400, f"start_profile: {error}") from None
        try:
            await asyncio.wrap_future(self.engine.start_profile(wanted))
        except BenchError as error:
            raise ApiError(400, f"{error.message}; {error.hint}") from None
        return PlainTextResponse("Start profiling.\n")

    async def stop_profile(self, _: Request) -> Response:
        try:
            trace = await asyncio.wrap_future(self.engine.stop_profile())
        except BenchError as error:
            raise ApiError(500, f"{error.message}; {error.hint}", kind="InternalServerError") from None
        if trace is None:
            return PlainTextResponse("Stop profiling: no step was recorded.\n")
        early = self.engine.profile_ended_early
        return PlainTextResponse(f"Stop profiling: {trace}\n{early}\n" if early else f"Stop profiling: {trace}\n")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
