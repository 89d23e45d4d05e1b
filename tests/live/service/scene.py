"""A service for tests: in a thread of this process, on a free port, with a file of its own."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from zib.live import Ledger
from zib.live.service import server
from zib.live.service.access import Access, new_token
from zib.live.service.api import application
from zib.live.service.config import BanditConfig, Config, Limits, Server, Token

BANDIT: dict[str, Any] = {"window": "1h", "draws": 50}
ROLES = ("decide", "read", "admin")


class Service:
    """A service that runs; `url` is its address and `ledgers` are those it serves.

    With `tokens=True` there is one of each role, named after it: `service.tokens["read"]`.
    """

    def __init__(
        self,
        database: str | Path,
        *,
        tokens: bool = False,
        bandits: Mapping[str, Mapping[str, Any]] | None = None,
        limits: Mapping[str, Any] | None = None,
        stop_within: float = 20.0,
    ) -> None:
        made = {role: new_token() for role in ROLES} if tokens else {}
        self.tokens = {role: token for role, (token, _) in made.items()}
        told = bandits or {"shop": {"arms": ("A", "B", "C")}}
        self.config = Config(
            database=str(database),
            server=Server(port=0, stop_within=stop_within),
            limits=Limits(**(limits or {})),
            tokens=tuple(
                Token(name=role, role=role, sha256=digest) for role, (_, digest) in made.items()
            ),
            bandits=tuple(
                BanditConfig(
                    name,
                    given["arms"],
                    {**BANDIT, **{key: value for key, value in given.items() if key != "arms"}},
                )
                for name, given in told.items()
            ),
        )
        self.ledgers: dict[str, Ledger] = {}
        self._server: server.Server | None = None

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self.ledgers = ledgers = self.config.open_ledgers(room=0)
        listener = server.bound(self.config)
        self.url = server.address_of(listener)
        self.app = application(
            ledgers, Access(self.config), self.config.limits, close=ledgers.close
        )
        self._server = server.Server(server.settings(self.config, self.app))
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._server.run, [listener]), daemon=True
        )
        self._thread.start()
        end = time.monotonic() + 30.0
        while not self._server.started:
            assert self._thread.is_alive(), "the service has not started"
            assert time.monotonic() < end
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Tell it to stop, as SIGTERM does, and wait until it has."""
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join(60.0)
            assert not self._thread.is_alive(), "the service does not stop"
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # -------------------------------------------------------------------------------------- asking

    def client(self, role: str | None = None, **more: Any) -> httpx.Client:
        """Return a client that sends the token of a role."""
        headers = {} if role is None else {"authorization": f"Bearer {self.tokens[role]}"}
        # without certificates, which take longer to load than a test
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=30.0, verify=False, trust_env=False, **more
        )

    def get(self, path: str, role: str | None = None, **more: Any) -> httpx.Response:
        """Ask for something."""
        with self.client(role) as client:
            return client.get(path, **more)

    def post(self, path: str, body: Any, role: str | None = None, **more: Any) -> httpx.Response:
        """Send JSON."""
        with self.client(role) as client:
            return client.post(path, json=body, **more)
