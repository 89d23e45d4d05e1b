"""A database that fails when told to, around either of the real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zib.live.answers import Transient
from zib.live.database import Connection, Database, open_database

Fault = Callable[[], None]


class Flaky(Database):
    """Passes everything on; `before` and `after` hold faults, each of which happens once.

    They are looked up by the name of the operation ("commit", "insert_new", …): what is in
    `before` happens instead of it, what is in `after` once it has been done.
    """

    def __init__(self, database: str) -> None:
        self.inner = open_database(database, room=0)
        self.before: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        self.connections = 0

    def connect(self) -> Any:
        self.connections += 1
        return _Proxy(self.inner.connect(), self)

    def reader(self) -> Connection:
        return self.inner.reader()

    def try_lead(self, bandit: int) -> bool:
        return self.inner.try_lead(bandit)

    def close(self) -> None:
        self.inner.close()

    def lose_reply(self, times: int = 1) -> None:
        """Let the next commits happen, but tell nobody."""
        self.after["commit"] = [Transient("the connection was lost") for _ in range(times)]

    def lose(self, operation: str, error: Exception | None = None) -> None:
        """Let the next operation of this name fail before anything is done."""
        self.before[operation] = [error or Transient("the connection was lost")]


class _Proxy:
    def __init__(self, inner: Connection, flaky: Flaky) -> None:
        self._inner = inner
        self._flaky = flaky

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in ("close", "rollback"):
            return found

        def call(*args: Any, **more: Any) -> Any:
            if faults := self._flaky.before.get(name):
                raise faults.pop(0)
            answer = found(*args, **more)
            if faults := self._flaky.after.get(name):
                raise faults.pop(0)
            return answer

        return call
