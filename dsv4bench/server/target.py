"""Where the server is: a URL, the headers that go with every request, and whether TLS is verified.

`parse_url` accepts what people paste: no scheme, a path prefix, a trailing `/v1` or a whole endpoint's path.
`find_target` takes the option, else DSV4BENCH_URL, else the usual ports of this host. A key comes from
DSV4BENCH_API_KEY or a header, never from the command line's URL flags, and no `repr` shows a header's value.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, unquote, urlsplit

from dsv4bench.errors import UsageError
from dsv4bench.host.redact import redact_text

KEY_VARIABLE = "DSV4BENCH_API_KEY"
ADMIN_KEY_VARIABLE = "DSV4BENCH_ADMIN_KEY"
URL_VARIABLE = "DSV4BENCH_URL"

# vLLM and most others, SGLang, llama.cpp, a second vLLM, and a common Flask port
USUAL_PORTS = (8000, 30000, 8080, 8001, 5000)

_ENDPOINT = re.compile(r"(?:/v1)?(?:/chat/completions|/completions|/models)?/*$")
OUR_HEADERS = frozenset({"content-length", "content-type", "transfer-encoding", "host", "connection", "accept"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EXAMPLE = "give it as http://host:port, e.g. http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Target:
    """One server. `base_url` has neither a trailing slash nor a trailing /v1; `prefix` is its path, "" or "/a/b"."""

    base_url: str
    scheme: str
    host: str
    port: int
    prefix: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True

    def url(self, path: str) -> str:
        """The address of `path` ("/health", "/v1/models") on this server."""
        return self.base_url + path

    @property
    def has_key(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    def for_control(self, env: Mapping[str, str] = os.environ) -> Target:
        """The same server for calls that steer it: SGLang can guard those with an admin key of their own."""
        key = env.get(ADMIN_KEY_VARIABLE, "").strip()
        if not key:
            return self
        _check_value(key, f"the key in {ADMIN_KEY_VARIABLE}")
        others = {k: v for k, v in self.headers.items() if k.lower() != "authorization"}
        return replace(self, headers={**others, "Authorization": f"Bearer {key}"})

    @property
    def on_this_host(self) -> bool:
        """Whether the server's address belongs to this machine (through a tunnel it does, too)."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)
        except OSError:
            return False
        return any(_is_ours(family, address) for family, _, _, _, address in found)


def parse_url(text: str, headers: Sequence[str] = (), insecure: bool = False) -> Target:
    """A target from a URL and `K:V` headers.

    Raises UsageError when the URL or a header cannot be used.
    """
    parts = _split(text)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    prefix = _ENDPOINT.sub("", parts.path)
    netloc = f"[{host}]" if ":" in host else host
    shown_port = f":{parts.port}" if parts.port else ""
    return Target(
        base_url=f"{parts.scheme}://{netloc}{shown_port}{prefix}",
        scheme=parts.scheme,
        host=host,
        port=port,
        prefix=prefix,
        headers=_headers(headers, parts),
        verify=not insecure,
    )


def find_target(
    option: str | None,
    headers: Sequence[str] = (),
    insecure: bool = False,
    *,
    env: Mapping[str, str] = os.environ,
    ports: Sequence[int] = USUAL_PORTS,
) -> Target:
    """The target that the user named, else the first server that answers on a usual port of this host.

    Raises UsageError when nothing is named and nothing answers.
    """
    named = option or env.get(URL_VARIABLE)
    if named:
        return parse_url(named, headers, insecure)
    for port in ports:
        target = parse_url(f"http://127.0.0.1:{port}")
        if _looks_like_llm_server(target):
            return parse_url(target.base_url, headers, insecure)
    tried = ", ".join(str(p) for p in ports)
    raise UsageError(
        f"no URL was given, {URL_VARIABLE} is not set, and no LLM server answers on 127.0.0.1 (ports {tried})",
        "give the server's URL, or use --demo to measure the server that comes with dsv4bench",
    )


def _split(text: str) -> SplitResult:
    """Scheme, host, port and path, checked; messages never show credentials."""
    shown = redact_text(text.strip())
    if not text.strip():
        raise UsageError("the URL is empty", _EXAMPLE)
    if re.search(r"[\s\x00-\x1f\x7f]", text.strip()):
        raise UsageError(f"not a URL: {shown!r} holds a space or a control character", _EXAMPLE)
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as e:
        raise UsageError(f"not a URL: {shown!r} ({e})", _EXAMPLE) from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"scheme {parts.scheme!r} of {shown!r} is not http or https", _EXAMPLE)
    host = parts.hostname or ""
    if not host or port == 0:
        raise UsageError(f"not a URL: {shown!r} names no {'port' if host else 'host'}", _EXAMPLE)
    bare = parts.netloc.rpartition("@")[2]
    if not re.fullmatch(r"[\w.:%-]+", host):
        raise UsageError(f"not a URL: {shown!r} holds no valid host name", _EXAMPLE)
    if not bare.startswith("[") and bare.count(":") > 1:
        raise UsageError(f"not a URL: {shown!r}", "put an IPv6 address into brackets: http://[::1]:8000")
    if parts.query or parts.fragment:
        raise UsageError(f"the URL {shown!r} holds a query or a fragment", "give the server's address only")
    return parts


def _headers(given: Sequence[str], parts: SplitResult) -> dict[str, str]:
    """Headers of every request; a given one wins over the URL's credentials, those over the environment's key."""
    found: dict[str, str] = {}
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if key:
        _check_value(key, f"the key in {KEY_VARIABLE}")
        found["Authorization"] = f"Bearer {key}"
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    for text in given:
        name, colon, value = text.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"--header {name[:40]!r}… is not of the form NAME:VALUE", "e.g. --header 'X-Team:infra'")
        if name.lower() in OUR_HEADERS:
            raise UsageError(f"--header {name}: the client sets it itself", "leave it out")
        _check_value(value, f"the value of --header {name}")
        found = {k: v for k, v in found.items() if k.lower() != name.lower()}
        found[name] = value
    return found


def _check_value(value: str, what: str) -> None:
    """Refuse what HTTP cannot carry, without showing it."""
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"{what} holds a line break, a control or a non-ASCII character", "check how it was copied")


def _looks_like_llm_server(target: Target) -> bool:
    """One quick question without a key; an answer that only an OpenAI-compatible server gives, or a 401."""
    import httpx

    try:
        with httpx.Client(timeout=0.3, trust_env=False) as client:
            reply = client.get(target.url("/v1/models"))
            if reply.status_code == 200:
                return isinstance(reply.json(), dict) and "data" in reply.json()
            if reply.status_code in (401, 403):
                return "json" in reply.headers.get("content-type", "")
            # transformers serve answers 500 here when it is offline, a loading llama.cpp 503
            return reply.status_code in (500, 503) and client.get(target.url("/health")).status_code in (200, 503)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    """Only an address of this machine can be bound; nothing is sent."""
    try:
        if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            return True
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address[0]), 0))
    except (OSError, ValueError):
        return False
    return True
