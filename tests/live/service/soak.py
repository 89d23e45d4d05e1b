"""A long run through HTTP, by the clock on the wall, over a network that repeats and reorders.

``python -m tests.live.service.soak --decisions 1000000`` starts `zib serve` on an SQLite file and
makes decisions as fast as it answers, one by one and in batches. Of the calls 5 % are made twice;
of the events 5 % overtake their decision, 2 % come after the window, 4 % are taken back, and 1 % of
the decisions are cancelled. Meanwhile pages are looked at, which stay open and are kept up to date,
and metrics are read. Then everything in the database is folded anew and compared with the sums that
were kept, with what was sent, and with what the page and the metrics say; and the memory of the
service must not have grown.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import random
import tempfile
import threading
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.live import stored
from tests.live.naive import Naive
from tests.live.servers import Server
from tests.live.service.callers import decision_id
from tests.live.service.running import Running
from tests.live.service.wire import Gone, Wire

ARMS = ["A", "B", "C"]
CHANCE = 0.05
REPEATED, OVERTAKING, LATE, REFUNDED, CANCELLED = 0.05, 0.05, 0.02, 0.04, 0.01
BANDIT = "shop"
CALLERS = 8
RATE = 5_000  # decisions a second that are hoped for: it sets the window, a quarter of the run
MEGABYTE = 1 << 20


class Caller:
    """A connection that makes its share of the decisions and later reports what they brought."""

    def __init__(self, port: int, me: int, n: int, *, window: float, batch: int, seed: int) -> None:
        self._wire = Wire(port)
        self._me, self._n, self._batch, self._window = me, n, batch, window
        self._rng = random.Random(f"{seed} {me}")
        self._due: list[tuple[float, int, str, dict[str, Any]]] = []  # (when, order, route, body)
        self._order = 0
        self.answers: Counter[str] = Counter()
        self.worth: dict[str, float] = {}  # what decisions must be worth in the end
        self.cancelled = 0

    def run(self) -> None:
        """Decide until all is decided, and report until all is reported."""
        made = 0
        with contextlib.closing(self._wire):
            while made < self._n or self._due:
                if self._due and self._due[0][0] <= time.time():
                    self._report()
                elif made < self._n:
                    size = self._batch if self._rng.random() < 0.5 else 1
                    size = min(size, self._n - made)
                    self._decide([f"{self._me} {made + k}" for k in range(size)])
                    made += size
                else:
                    time.sleep(0.005)

    def _send(self, route: str, body: dict[str, Any]) -> Any:
        """Send a request, some of them twice, and return the first answer."""
        found = None
        for _ in range(2 if self._rng.random() < REPEATED else 1):
            answer = self._wire.post(f"/v1/{BANDIT}/{route}", body)
            assert answer.status == 200, (route, body, answer)
            told = answer.json()
            for receipt in told.get("receipts", [told] if "status" in told else []):
                self.answers[receipt["status"]] += 1
            found = found or told
        return found

    def _decide(self, keys: list[str]) -> None:
        buys = {key: self._rng.randrange(1, 400) * 0.25 for key in keys if self._chance(CHANCE)}
        early = {key for key in buys if self._chance(OVERTAKING)}
        for key in early:
            self._send("event", self._event(key, buys[key]))
        if len(keys) == 1:
            made = [self._send("decide", {"key": keys[0]})]
        else:
            made = self._send("decide/batch", {"decisions": [{"key": key} for key in keys]})
            made = made["decisions"]
        for key, decision in zip(keys, made, strict=True):
            assert decision["id"] == decision_id(BANDIT, key)
            if key in early:
                self.worth[decision["id"]] = buys[key]
            self._plan(key, decision["at"], None if key in early else buys.get(key))

    def _plan(self, key: str, at: float, value: float | None) -> None:
        """Put down when what becomes of a decision is reported."""
        id = decision_id(BANDIT, key)
        if value is not None:
            delay = min(self._rng.expovariate(5.0 / self._window), 0.98 * self._window)
            if self._chance(LATE):
                delay = self._rng.uniform(1.05, 1.2) * self._window
            self.worth[id] = value
            self._later(at + delay, "event", {**self._event(key, value), "at": at + delay})
            if self._chance(REFUNDED):
                self.worth[id] = 0.0
                then = at + delay + 0.01
                body = {"id": f"refund {key}", "decision_id": id, "value": 0.0, "at": then}
                self._later(then, "revise", body)
        elif self._chance(CANCELLED):
            self.cancelled += 1
            self.worth.pop(id, None)
            self._later(at + 0.1 * self._window, "cancel", {"decision_id": id})

    def _report(self) -> None:
        _when, _, route, body = heapq.heappop(self._due)
        if route != "event" or self._rng.random() < 0.5:
            self._send(route, body)
            return
        events = [body]
        while self._due and self._due[0][0] <= time.time() and self._due[0][2] == "event":
            events.append(heapq.heappop(self._due)[3])
            if len(events) >= self._batch:
                break
        self._rng.shuffle(events)
        self._send("event/batch", {"events": events})

    def _later(self, when: float, route: str, body: dict[str, Any]) -> None:
        self._order += 1
        heapq.heappush(self._due, (when, self._order, route, body))

    def _event(self, key: str, value: float) -> dict[str, Any]:
        return {"id": f"e {key}", "decision_id": decision_id(BANDIT, key), "value": value}

    def _chance(self, chance: float) -> bool:
        return self._rng.random() < chance


class Watching:
    """Looks at the page, the metrics and the memory of a service until told to stop."""

    def __init__(self, service: Running, viewers: int = 3) -> None:
        self._service = service
        self._stop = threading.Event()
        self.memory: list[int] = []
        self.updates = 0
        self.scrapes = 0
        self.failed: list[BaseException] = []
        self._viewers = [Wire(service.port, timeout=30.0) for _ in range(viewers)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(what,), daemon=True)
            for what in (self._measure, *(lambda w=wire: self._view(w) for wire in self._viewers))
        ]

    def _guarded(self, what: Any) -> None:
        try:
            what()
        except BaseException as error:
            if not self._stop.is_set():
                self.failed.append(error)

    def _view(self, wire: Wire) -> None:
        wire.send(f"GET /bandits/{BANDIT}/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        status, headers = wire.head()
        assert status == 200, status
        assert headers["content-type"].startswith("text/event-stream"), headers
        while line := wire.line():
            self.updates += line.startswith(b"data:")
        raise Gone("the page is kept up to date no more")

    def _measure(self) -> None:
        while not self._stop.wait(0.5):
            self.memory.append(self._service.memory())
            for path in ("/metrics", f"/bandits/{BANDIT}", f"/v1/{BANDIT}/status"):
                answer = self._service.ask("GET", path)
                assert answer.status == 200, (path, answer)
            self.scrapes += 1

    def __enter__(self) -> Watching:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for wire in self._viewers:
            wire.vanish()
        for thread in self._threads:
            thread.join(10)


def run(
    folder: Path, database: str, *, decisions: int, seed: int, workers: int = 1, batch: int = 20
) -> dict[str, Any]:
    """Play, then compare what is kept with the log and with what was sent."""
    window = max(1.5, decisions / RATE / 4.0)
    settings = {"arms": ARMS, "window": window, "grace": window, "holdout": 0.1, "refresh": 0.5}
    service = Running(
        folder, database=database, bandits={BANDIT: settings}, server={"workers": workers}
    )
    share = decisions // CALLERS
    failed: list[BaseException] = []
    with service:
        callers = [
            Caller(service.port, me, share, window=window, batch=batch, seed=seed)
            for me in range(CALLERS)
        ]

        def guarded(caller: Caller) -> None:
            try:
                caller.run()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(c,), daemon=True) for c in callers]
        began = time.monotonic()
        with Watching(service) as watching:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        played = time.monotonic() - began
        for error in (*failed, *watching.failed):
            raise error
        said = service.ask("GET", f"/v1/{BANDIT}/status").json()
        ended = service.stop()
        assert ended == 0, f"it ended with {ended}:\n{service.words()}"
    kept = stored.check(
        service.database,
        Naive(window=round(window * 1e6), grace=round(window * 1e6)),
        BANDIT,
    )
    compare(kept, callers, share)
    return {
        "decisions": share * CALLERS,
        "entries": len(kept.entries),
        **sum((caller.answers for caller in callers), Counter()),
        "updates of pages": watching.updates,
        "scrapes": watching.scrapes,
        "seconds": round(played, 1),
        "fold": round(time.monotonic() - began - played, 1),
        "grown by": grown(watching.memory),
        "megabytes": round(max(watching.memory) / MEGABYTE),
        "status": said,
    }


def compare(kept: Naive, callers: list[Caller], share: int) -> None:
    """Fail unless the log holds what was sent, no less and no more."""
    assert len(kept.decisions) == share * len(callers)
    worth = {id: value for caller in callers for id, value in caller.worth.items()}
    folded = kept.statistics()
    paid = [Fraction(value) for value in worth.values() if value]
    assert sum(folded.rewarded.values()) == len(paid)
    assert sum(folded.total.values()) == sum(paid)  # the same numbers, exactly
    assert sum(folded.zeros.values()) == len(worth) - len(paid)
    gone = sum(caller.cancelled for caller in callers)
    assert sum(folded.waiting.values()) == len(kept.decisions) - len(worth) - gone


def grown(memory: list[int]) -> float:
    """Return by how many megabytes memory was higher at the end than in the middle of a run."""
    half = len(memory) // 2
    middle = memory[half // 2 : half + half // 2] or memory
    return round((max(memory[half + half // 2 :]) - max(middle)) / MEGABYTE, 1)


def main() -> None:
    """Play, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.live.service.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="two workers on PostgreSQL")
    chosen = parser.parse_args()
    server = Server() if chosen.postgres else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = run(
                Path(folder),
                "live.db" if server is None else server.fresh(),
                decisions=chosen.decisions,
                seed=chosen.seed,
                workers=1 if server is None else 2,
                batch=200,
            )
    finally:
        if server is not None:
            server.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
