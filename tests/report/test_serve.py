"""Is the live page served to this machine alone, from three routes, kept fresh, and up under load?"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etastar.errors import InputError
from etastar.report.section import Progress, Section, waiting_section
from etastar.report.serve import Live, allowed_names, host_allowed, is_loopback, make_server
from etastar.report.tables import Column, table
from reported import small_section


class Study:
    """What a running study looks like from outside: a stamp, sections, progress."""

    def __init__(self) -> None:
        self.stamp, self.done, self.computed = 0, 0, 0
        self.fault: Exception | None = None
        self.section: Section = waiting_section("early", "No run has finished yet.", progress=self.progress())

    def progress(self) -> Progress:
        stacks = table("Stacks", (Column("name", "stack", "text"),), [("<b>w32</b>",)])
        return Progress(f"{self.done} of 4 runs done", self.done, 4, self.done == 4, stacks)

    def sections(self) -> list[Section]:
        if self.fault is not None:
            raise self.fault
        self.computed += 1
        return [self.section]


@contextmanager
def served(study: Study, every: float = 0.05) -> Iterator[tuple[Live, Callable[..., http.client.HTTPResponse]]]:
    live = Live(stamp=lambda: study.stamp, sections=study.sections, progress=study.progress, every=every)
    server = make_server("127.0.0.1", 0)
    server.live = live
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()

    def ask(path: str = "/", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse()

    try:
        yield live, ask
    finally:
        server.shutdown()
        server.server_close()
        live.close()


@pytest.fixture
def early() -> Study:
    return Study()


def wait_until(check: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def news(ask: Callable[..., http.client.HTTPResponse]) -> dict[str, Any]:
    return json.loads(ask("/status.json").read())


def test_it_follows_a_study(early: Study) -> None:
    with served(early) as (_, ask):
        assert "No learning rate yet" in ask("/").read().decode()
        first = news(ask)
        assert first["words"] == "0 of 4 runs done"
        assert "<b>w32" not in first["progress"]
        early.done = 2
        wait_until(lambda: news(ask)["words"] == "2 of 4 runs done")
        assert news(ask)["version"] == first["version"]
        early.section, early.stamp, early.done = small_section(), 1, 4
        wait_until(lambda: news(ask)["version"] != first["version"])
        wait_until(lambda: news(ask)["finished"])
        fresh = json.loads(ask("/data.json").read())
        head = small_section().headline
        assert head is not None
        assert head.lr in fresh["main"]
        assert fresh["version"] == news(ask)["version"]
        assert fresh["data"]["sections"][0]["key"] == small_section().key
        assert head.lr in ask("/").read().decode()


def test_requests_do_not_compute(early: Study) -> None:
    with served(early) as (_, ask):
        for _ in range(30):
            ask("/status.json").read()
            ask("/data.json").read()
        assert early.computed == 1


@pytest.mark.parametrize(
    "path",
    ["/../../../etc/passwd", "/etc/passwd", "//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.css", "/data.json/", "/runs/a.parquet",
     "http://127.0.0.1/etc/passwd", "/\\..\\x", "/data.json%00", "/." + "a" * 3000],
)  # fmt: skip
def test_no_path_names_a_file(early: Study, path: str) -> None:
    with served(early) as (_, ask):
        answer = ask(path)
        assert answer.status == 404
        body = answer.read().decode()
        assert "root:" not in body
        assert "passwd" not in body


def test_only_get_and_head(early: Study) -> None:
    with served(early) as (_, ask):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer = ask("/", method)
            assert answer.status == 405
            assert answer.headers["Allow"] == "GET, HEAD"
        head = ask("/", "HEAD")
        assert head.status == 200
        assert int(head.headers["Content-Length"]) > 1_000_000
        assert head.read() == b""
        assert ask("/", "BREW").status == 501


def test_headers_shut_the_page_in(early: Study) -> None:
    with served(early) as (_, ask):
        headers = ask("/").headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "connect-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_rebound_name_is_turned_away(early: Study) -> None:
    with served(early) as (_, ask):
        for host in (
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "",
            "10.0.0.1",
            "localhost.evil.example",
        ):
            assert ask("/data.json", Host=host).status == 421, host
        for host in ("localhost", "localhost:1234", "127.0.0.1:9", "[::1]:80", "LOCALHOST"):
            assert ask("/status.json", Host=host).status == 200, host


def test_names_of_an_open_server() -> None:
    names = allowed_names("0.0.0.0")
    assert host_allowed("192.168.1.7:8787", names)
    assert host_allowed(f"{socket.gethostname()}:8787", names)
    assert not host_allowed("evil.example:8787", names)
    assert not host_allowed("", names)
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")


def test_it_stays_up_under_load(early: Study) -> None:
    """More askers at once than are answered at once."""
    with served(early) as (_, ask):
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(ask("/status.json").status)) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert found == [200] * 200
        assert ask("/").status == 200


def test_idle_connections_do_not_stop_it(early: Study) -> None:
    live = Live(stamp=lambda: 0, sections=early.sections, progress=early.progress, every=1)
    server = make_server("127.0.0.1", 0)
    server.live = live
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    port = server.server_address[1]
    idle = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(30)]
    try:
        for s in idle[:10]:
            s.sendall(b"GET / HT")
        for s in idle[10:20]:
            s.sendall(b"\x00\xff" * 100 + b"\r\n\r\n")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/status.json")
        assert connection.getresponse().status == 200
    finally:
        for s in idle:
            s.close()
        server.shutdown()
        server.server_close()
        live.close()


@pytest.mark.parametrize("fault", [InputError("runs/a.parquet is torn", hint="wait"), FileNotFoundError("a.parquet")])
def test_a_study_that_cannot_be_read_for_a_moment_says_so_and_comes_back(early: Study, fault: Exception) -> None:
    with served(early) as (_, ask):
        early.fault, early.stamp = fault, 1
        wait_until(lambda: "a.parquet" in news(ask)["words"])
        assert "No learning rate yet" in ask("/").read().decode()  # what was there stays
        early.fault, early.section = None, small_section()
        wait_until(lambda: news(ask)["version"] != "1")
        assert "a.parquet" not in news(ask)["words"]


def test_a_watcher_that_died_is_told(early: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with served(early) as (_, ask):
        early.fault, early.stamp = ZeroDivisionError("a bug"), 1
        wait_until(lambda: "no longer refreshed" in news(ask)["words"])
        assert ask("/").status == 200


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot serve on"):
            make_server("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(InputError, match="cannot serve on"):
            make_server("no.such.host.invalid", 0)


def test_a_folder_without_runs_is_a_waiting_page(tmp_path: Path) -> None:
    from etastar.cli.status_page import live_section, stamp_of

    section = live_section(tmp_path, None, None)
    assert "No run has finished yet" in section.waiting
    before = stamp_of(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.parquet").write_bytes(b"not parquet")
    assert stamp_of(tmp_path) != before
    assert "carry no report" in live_section(tmp_path, None, None).waiting
