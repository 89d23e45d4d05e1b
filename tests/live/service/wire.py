"""A connection to a service on which tests send whatever bytes they like, and when they like."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    """What a service answered."""

    status: int
    headers: dict[str, str]  # names in small letters
    body: bytes

    def json(self) -> Any:
        """Return what the body says."""
        return json.loads(self.body)


class Gone(Exception):
    """The service closed the connection, or nobody listens."""


def request(
    method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class Wire:
    """One connection, made at once; every wait ends after `timeout` seconds."""

    def __init__(
        self, port: int, *, timeout: float = 20.0, headers: Mapping[str, str] | None = None
    ) -> None:
        self._headers = dict(headers or {})
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as failed:
            raise Gone(str(failed)) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    # ----------------------------------------------------------------------------------- asking

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        """Send a request, its body as JSON, and return the answer."""
        headers = {**self._headers, **more}
        content = None
        if body is not None:
            headers = {**JSON, **headers}
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(request(method, path, content, headers))
        return self.answer()

    def get(self, path: str, **more: str) -> Answer:
        """Ask for something."""
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any, **more: str) -> Answer:
        """Tell something."""
        return self.ask("POST", path, body, **more)

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        try:
            self.socket.sendall(data)
        except OSError as failed:
            raise Gone(str(failed)) from None

    def answer(self) -> Answer:
        """Wait for the next answer."""
        try:
            status, headers = self.head()
            return Answer(status, headers, self._body(status, headers))
        except (OSError, ValueError) as failed:
            raise Gone(f"{type(failed).__name__}: {failed}") from None

    # ---------------------------------------------------------------------------------- reading

    def head(self) -> tuple[int, dict[str, str]]:
        """Wait for the status and the headers of an answer."""
        line = self.line()
        if not line.endswith(b"\n"):
            raise Gone("the connection was closed without an answer")
        status, headers = int(line.split()[1]), {}
        while (line := self.line()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return status, headers

    def line(self) -> bytes:
        """Wait for the next line of a body that goes on."""
        try:
            return self._reader.readline()
        except OSError as failed:
            raise Gone(str(failed)) from None

    def _body(self, status: int, headers: Mapping[str, str]) -> bytes:
        if status in (204, 304) or status < 200:
            return b""
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self._reader.readline().split(b";")[0], 16):
                parts.append(self._exactly(size))
                self._reader.readline()
            self._reader.readline()
            return b"".join(parts)
        return self._reader.read()

    def _exactly(self, size: int) -> bytes:
        found = self._reader.read(size)
        if len(found) < size:
            raise Gone("the connection was closed in the middle of an answer")
        return found

    # ----------------------------------------------------------------------------------- ending

    def closed_within(self, seconds: float) -> bool:
        """Whether the service closes the connection within some seconds; what it sends is lost."""
        end = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                try:
                    if not self.socket.recv(1 << 16):
                        return True
                except TimeoutError:
                    return False
            return False
        return True  # it was reset

    def vanish(self) -> None:
        """End without a word of farewell: the other side hears a reset, if anything."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """End the connection, even if a thread waits for the next line."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)
        self._reader.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def wait_until(happened: Callable[[], Any], seconds: float = 30.0, what: str = "it") -> Any:
    """Wait until something is true, but not for ever, and return what it was."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found
