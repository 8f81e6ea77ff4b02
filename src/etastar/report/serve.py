"""How is a study watched in a browser while it runs? The same page on this machine, and small news to ask for.

One thread looks at the study every few seconds and computes the page anew when runs were added; requests are answered
from what it made last, so no request costs more than its bytes. There are three routes and none of them names a file.
Whoever asks must say a host name that is this machine's: a web page elsewhere that had its own name point here
(DNS rebinding) is turned away.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from etastar.errors import EtastarError, InputError
from etastar.report.page import build_page, drawings, json_text, main_html, page_data, page_title, policy, progress_html
from etastar.report.section import Progress, Section

MOST_AT_ONCE = 64  # requests; more wait in the listener's queue
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Snapshot:
    """What is served until the next look."""

    version: str
    page: bytes
    data: bytes


class Live:
    """A study that is looked at again and again.

    `stamp` says cheaply whether runs were added, `sections` computes what the page holds, `progress` says where the
    study stands (or None).
    """

    def __init__(
        self,
        *,
        stamp: Callable[[], Hashable],
        sections: Callable[[], Sequence[Section]],
        progress: Callable[[], Progress | None],
        every: float = 3.0,
    ) -> None:
        self._stamp, self._sections, self._progress, self._every = stamp, sections, progress, every
        self._stop = threading.Event()
        self._seen: Hashable = None
        self._number = 0
        self._error = ""
        self._status = b""
        self.snapshot = self._computed()
        self._thread = threading.Thread(target=self._watch, name="etastar-live", daemon=True)
        self._thread.start()

    def status(self) -> bytes:
        """The news, as JSON."""
        if self._thread.is_alive():
            return self._status
        return json.dumps({"version": self.snapshot.version, "words": "no longer refreshed: see the terminal"}).encode()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _watch(self) -> None:
        pause = self._every
        while not self._stop.wait(pause):
            started = time.monotonic()
            self._look()
            # a large study is computed less often, so that half of the machine's time stays free
            pause = max(self._every, time.monotonic() - started)

    def _look(self) -> None:
        try:
            if self._stamp() != self._seen:
                self.snapshot = self._computed()
            else:
                self._status = self._news(self._progress())
        except (EtastarError, OSError) as error:  # a study that is being written may be unreadable for a moment
            self._error = str(getattr(error, "message", error))
            self._status = self._news(None)

    def _computed(self) -> Snapshot:
        seen = self._stamp()
        sections = list(self._sections())
        self._seen, self._error = seen, ""
        self._number += 1
        version = f"{self._number}"
        data = {
            "version": version,
            "title": page_title(sections),
            "main": main_html(sections),
            "data": page_data(sections),
            "drawings": drawings(sections),
        }
        self._status = self._news(sections[0].progress, version)
        page = build_page(sections, live=True, version=version).encode()
        return Snapshot(version, page, json_text(data).encode())

    def _news(self, progress: Progress | None, version: str | None = None) -> bytes:
        words = self._error or (progress.words if progress else "live")
        news: dict[str, Any] = {
            "version": version or self.snapshot.version,
            "words": words,
            "finished": bool(progress and progress.finished),
            "progress": progress_html(progress) if progress else None,
        }
        return json_text(news).encode()


class LiveServer(ThreadingHTTPServer):
    """Listens from the start; answers once `live` is there and `serve_forever` runs."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address_family = family
        self.live: Live | None = None
        self.names = allowed_names(address[0])
        self._free = threading.Semaphore(MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds that a slow asker may hold a thread
    protocol_version = "HTTP/1.0"  # a connection a request: none is held open between two

    @property
    def _own(self) -> LiveServer:
        assert isinstance(self.server, LiveServer)
        return self.server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _refused(self) -> None:
        self.close_connection = True  # its body is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", "text/plain", allow=True)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refused

    def _answer(self, *, body: bool) -> None:
        if not host_allowed(self.headers.get("Host", ""), self._own.names):
            self.close_connection = True
            self._send(
                HTTPStatus.MISDIRECTED_REQUEST, b"this is not the host that was asked for\n", "text/plain", body=body
            )
            return
        live = self._own.live
        assert live is not None
        route = self.path.partition("?")[0]
        if route == "/":
            self._send(HTTPStatus.OK, live.snapshot.page, "text/html", body=body)
        elif route == "/data.json":
            self._send(HTTPStatus.OK, live.snapshot.data, "application/json", body=body)
        elif route == "/status.json":
            self._send(HTTPStatus.OK, live.status(), "application/json", body=body)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is /, /data.json and /status.json\n", "text/plain", body=body)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, *, body: bool = True, allow: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        if allow:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def version_string(self) -> str:
        """No version of anything."""
        return "etastar"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the study."""


def make_server(host: str, port: int) -> LiveServer:
    """A server that listens. A host or port that cannot be bound is refused in words."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return LiveServer((str(address[0]), int(address[1])), family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot serve on {host[:60]}:{port} ({reason})", hint="--port 0 takes any free port"
        ) from None


def is_loopback(host: str) -> bool:
    """Does a host reach this machine alone?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def allowed_names(bound: str) -> frozenset[str]:
    """Host names that a request may carry: loopback's, and for an open server this machine's own."""
    if is_loopback(bound):
        return frozenset({*_LOOPBACK_NAMES, bound})
    return frozenset({*_LOOPBACK_NAMES, bound, "*ip", socket.gethostname().lower(), socket.getfqdn().lower()})


def host_allowed(header: str, names: frozenset[str]) -> bool:
    """Is the Host header one of this machine's? On an open server any plain address is: only names can be rebound."""
    host = header.strip().lower()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if host in names:
        return True
    if "*ip" not in names:
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
