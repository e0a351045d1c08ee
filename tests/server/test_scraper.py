"""Scraping in the background: samples arrive, failures are counted, nothing is raised into a measurement."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from fake_server import serve

from dsv4bench.records.server import Engine, ServerInfo
from dsv4bench.server.launch import free_port
from dsv4bench.server.scraper import GaugeScraper
from dsv4bench.server.target import parse_url


def _info(url: str, metrics_path: str | None = "/metrics") -> ServerInfo:
    return ServerInfo(url=url, engine=Engine.VLLM, model="m", metrics_path=metrics_path)


def _wait(condition: Any) -> bool:
    for _ in range(400):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_samples_arrive_and_the_thread_ends() -> None:
    count = iter(range(10**6))

    def metrics(handler: BaseHTTPRequestHandler) -> None:
        raw = f"vllm:num_requests_running {next(count)}\n".encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    with serve({"/metrics": metrics}) as fake:
        with GaugeScraper(parse_url(fake.url), _info(fake.url), interval_s=0.02) as scraper:
            assert _wait(lambda: len(scraper.samples) >= 3)
            now = scraper.scrape_now()
            assert now is not None and now.running is not None
        assert not any(t.name == "gauge-scraper" for t in threading.enumerate())
        running = [g.running for g in scraper.samples]
        assert sorted(running) == list(range(len(running)))
        assert all(a.t_s <= b.t_s for a, b in zip(scraper.samples, scraper.samples[1:], strict=False))
        assert scraper.failures == 0


def test_failures_are_counted_and_scraping_goes_on() -> None:
    answers: list[Any] = [(500, "x"), (200, "<html>"), (200, "vllm:num_requests_running 1\n")]

    def metrics(handler: BaseHTTPRequestHandler) -> None:
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    with serve({"/metrics": metrics}) as fake:
        with GaugeScraper(parse_url(fake.url), _info(fake.url), interval_s=0.01) as scraper:
            assert _wait(lambda: scraper.samples)
        assert scraper.failures == 2
        assert "Prometheus" in (scraper.last_failure or "")


def test_a_server_that_died_is_no_error() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with GaugeScraper(parse_url(url), _info(url), interval_s=0.01) as scraper:
        assert scraper.scrape_now() is None
        assert _wait(lambda: scraper.failures >= 2)
    assert scraper.samples == []
    assert scraper.last_failure


def test_a_server_without_metrics_is_left_alone() -> None:
    with serve({}) as fake:
        with GaugeScraper(parse_url(fake.url), _info(fake.url, metrics_path=None), interval_s=0.01) as scraper:
            assert scraper.scrape_now() is None
        assert fake.paths == []
    assert scraper.failures == 0
    assert scraper.last_failure == "the server has no metrics"
