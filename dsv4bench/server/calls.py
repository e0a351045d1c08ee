"""Control calls over HTTP: small questions to the server outside the measurement, with every failure in words.

`Caller.get` raises UsageError when nobody answers, `Caller.ask` never raises and gives the reason instead. A body
is read up to a limit and a call ends at its deadline, whatever the server drips. No proxy is used and only
redirects on the same server are followed, so headers go nowhere else. The load client does not use this.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from dsv4bench.errors import UsageError
from dsv4bench.host.redact import redact_text
from dsv4bench.server.target import KEY_VARIABLE, Target

_MAX_BODY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `failure` says why there is none; `status` is 0 then."""

    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    failure: str | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The decoded body, or None when it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def why_not(self) -> str:
        """What was wrong with this answer, for a reader who expected a 200 of another form."""
        if self.failure:
            return f"{self.path}: {self.failure}"
        if not self.ok:
            return f"{self.path} answered {self.status}"
        kind = self.headers.get("content-type", "").partition(";")[0] or "an untyped body"
        return f"{self.path} answered 200 with {kind} that is not what was expected"


class Caller:
    """Asks one server; a context manager. Not for two threads at a time."""

    def __init__(self, target: Target, timeout_s: float = 5.0) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self._client = httpx.Client(
            headers=target.headers,
            verify=_tls(target) if target.scheme == "https" else False,
            timeout=timeout_s,
            trust_env=False,
        )

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Reply:
        """GET `path`; any HTTP status is an answer.

        Raises UsageError when there is no answer, or when it is 401 or 403.
        """
        reply = self._guarded(lambda: self._send("GET", path), path, explain=True)
        if reply.status in (401, 403):
            raise _unauthorised(self.target, reply)
        return reply

    def ask(self, path: str) -> Reply:
        """GET `path`; a failure is told by the reply."""
        return self._guarded(lambda: self._send("GET", path), path, explain=False)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Reply:
        """POST `path`, with a JSON body or none; a failure is told by the reply."""
        return self._guarded(lambda: self._send("POST", path, body), path, explain=False)

    def _guarded(self, send: Callable[[], Reply], path: str, explain: bool) -> Reply:
        """Run a call; retry once when a kept-alive connection had been closed meanwhile."""
        for attempt in (1, 2):
            try:
                return send()
            except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as e:
                if attempt == 1 and isinstance(e, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
                    continue
                if explain:
                    raise _explain(e, self.target, path, self.timeout_s) from e
                late = isinstance(e, httpx.TimeoutException)
                return Reply(path=path, failure=_in_words(e, self.timeout_s), timed_out=late)
        raise AssertionError("the second attempt returns or raises")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Reply:
        url, deadline = self.target.url(path), time.monotonic() + self.timeout_s
        for _ in range(3):
            with self._client.stream(method, url, json=body) as response:
                onward = self._same_server(response)
                if onward is None:
                    return _read(response, path, deadline)
            url = onward
        raise httpx.TooManyRedirects(f"more than two redirects from {path}")

    def _same_server(self, response: httpx.Response) -> str | None:
        """Where a redirect leads, when it stays on this server (Starlette sends /metrics to /metrics/)."""
        if not response.is_redirect:
            return None
        onward = urljoin(str(response.url), response.headers["location"])
        here, there = urlsplit(self.target.base_url), urlsplit(onward)
        return onward if (here.scheme, here.netloc) == (there.scheme, there.netloc) else None


def _read(response: httpx.Response, path: str, deadline: float) -> Reply:
    chunks, size = [], 0
    for chunk in response.iter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            return Reply(path=path, status=response.status_code, failure="the answer is larger than 16 MiB")
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer did not end in time")
    headers = {k.lower(): v for k, v in response.headers.items()}
    return Reply(path=path, status=response.status_code, headers=headers, body=b"".join(chunks))


def _tls(target: Target) -> ssl.SSLContext:
    """The system's trust store (SSL_CERT_FILE included), as the load client uses it."""
    context = ssl.create_default_context()
    if not target.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _in_words(error: Exception, timeout_s: float) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {timeout_s:g} s"
    return redact_text(str(error)) or type(error).__name__


def _explain(error: Exception, target: Target, path: str, timeout_s: float) -> UsageError:
    """What a failed first contact means, and what to do."""
    where, text = target.base_url, _whole_text(error)
    if isinstance(error, httpx.ConnectTimeout):
        return UsageError(
            f"{where} did not accept a connection within {timeout_s:g} s", "check host, port and firewall"
        )
    if isinstance(error, httpx.TimeoutException):
        return UsageError(
            f"{where} accepted the connection but did not answer GET {path} within {timeout_s:g} s",
            "is it an LLM server, still starting, or stuck? its log tells",
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return UsageError(
            f"the TLS certificate of {where} cannot be verified", "use --insecure to accept it all the same"
        )
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return UsageError(f"{where} does not speak TLS", "give its URL with http://")
    if isinstance(error, httpx.ConnectError):
        if "getaddrinfo" in text or "Name or service" in text or "name resolution" in text or "nodename" in text:
            return UsageError(f"the host name {target.host!r} cannot be resolved", "check the URL's spelling")
        if "refused" in text.lower() or "Errno 111" in text:
            return UsageError(
                f"nothing listens at {where} (connection refused)", "start the server, or check the port"
            )
        return UsageError(f"cannot connect to {where}: {redact_text(str(error))}", "check host, port and network")
    hint = "an https server asked over http?" if target.scheme == "http" else "is it an HTTP server?"
    return UsageError(f"{where} gave no HTTP answer to GET {path}: {_in_words(error, timeout_s)}", hint)


def _whole_text(error: BaseException | None) -> str:
    """The error and what caused it: httpx keeps the errno's words in the cause."""
    words = []
    while error is not None:
        words.append(f"{type(error).__name__} {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(words)


def _unauthorised(target: Target, reply: Reply) -> UsageError:
    sent = "the key that was sent is not accepted" if target.has_key else "no key was sent"
    return UsageError(
        f"{target.base_url} answered {reply.status} to GET {reply.path}: {sent}",
        f"set {KEY_VARIABLE}, or give --header 'Authorization: Bearer …'",
    )
