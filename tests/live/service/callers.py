"""Callers that go on whatever happens to the service: no answer, or 503, and they ask again.

They note everything that was acknowledged, and now and then ask again for something they have an
answer to: it has to be the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import threading
import time
from typing import Any

from tests.live.service.wire import Answer, Gone, Wire

PATIENCE = 60.0  # seconds without an answer
EVENT, REFUND, CANCEL = "event", "refund", "cancel"
SEVERAL = 5  # decisions in a batch


def worth(number: int) -> float:
    """What the event of the decision with this number says: exact in binary, some zeros."""
    return (number % 7) * 0.25


def decision_id(bandit: str, key: str) -> str:
    """Return the id that the decision with a key will have; any client may work it out."""
    return hashlib.blake2b(f"{bandit}\0{key}".encode(), digest_size=12).hexdigest()


class Told:
    """What callers of one bandit know to be in the database."""

    def __init__(self, bandit: str, fine: tuple[str, ...] = ()) -> None:
        self.bandit = bandit
        self.fine = fine  # what may become of an event besides being applied
        self.decisions: dict[int, dict[str, Any]] = {}
        self.numbers: list[int] = []  # of the decisions, in the order of their answers
        self.entries: list[tuple[str, int]] = []  # (what, number of the decision)

    def __len__(self) -> int:
        return len(self.decisions) + len(self.entries)


class Wrong(Exception):
    """The service gave an answer that it must not give."""


class Caller:
    """One connection that decides and reports; every `step`-th number is its own."""

    def __init__(
        self, port: int, told: Told, first: int, step: int, stop: threading.Event, seed: int
    ) -> None:
        self._port, self._told, self._stop = port, told, stop
        self._numbers = itertools.count(first, step)
        self._rng = random.Random(f"{seed} {first}")
        self._wire: Wire | None = None
        self.repeats = self.broken = 0
        self.refused: set[str] = set()  # what was said with a 503

    # ----------------------------------------------------------------------------------- sending

    def send(self, what: str, body: Any) -> tuple[Any, bool]:
        """Return the answer, and whether the request was sent more than once."""
        end, tries = time.monotonic() + PATIENCE, 0
        while True:
            tries += 1
            try:
                answer = self._once(f"/v1/{self._told.bandit}/{what}", body)
            except Gone:
                self.broken += 1
                self.close()
            else:
                if answer.status == 200:
                    return answer.json(), tries > 1
                if answer.status != 503:
                    raise Wrong(f"{what} {body}: {answer.status} {answer.body!r}")
                self.refused.add(answer.json()["error"])
            if time.monotonic() > end:
                raise Wrong(f"{what} {body}: no answer for {PATIENCE:g} s")
            self.repeats += 1
            time.sleep(min(0.02 * tries, 0.3))

    def _once(self, path: str, body: Any) -> Answer:
        if self._wire is None:
            self._wire = Wire(self._port)
        return self._wire.post(path, body)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # ------------------------------------------------------------------------------ what it asks

    def run(self) -> None:
        """Go on until told to stop; the last request is waited for."""
        with contextlib.closing(self):
            while not self._stop.is_set():
                self._one(next(self._numbers))

    def key(self, number: int) -> str:
        return f"key {number}"

    def id(self, number: int) -> str:
        """Return the id of a decision, known before it is made."""
        return decision_id(self._told.bandit, self.key(number))

    def _one(self, number: int) -> None:
        if number % 5 == 4:  # the event overtakes its decision
            self.enter(EVENT, number)
        if number % 10 == 3:
            numbers = [number * 1_000_000 + k for k in range(SEVERAL)]
            self.decide_many(numbers)
            self.enter_many(EVENT, numbers[:2])
            return
        self.decide(number)
        if number % 5 < 2:
            self.enter(EVENT, number)
        if number % 10 == 1:
            self.enter(REFUND, number)
        if number % 10 == 5:
            self.enter(CANCEL, number)
        if self._rng.random() < 0.1:
            self.again()

    def decide(self, number: int) -> None:
        answer, _ = self.send("decide", {"key": self.key(number)})
        if answer["id"] != self.id(number):
            raise Wrong(f"the decision {number} has the id {answer['id']}")
        self._told.decisions[number] = answer
        self._told.numbers.append(number)

    def decide_many(self, numbers: list[int]) -> None:
        asked = [{"key": self.key(number)} for number in numbers]
        answer, _ = self.send("decide/batch", {"decisions": asked})
        self._told.decisions.update(zip(numbers, answer["decisions"], strict=True))
        self._told.numbers += numbers

    def body(self, what: str, number: int) -> dict[str, Any]:
        """Return an event, a refund or a cancellation as it is sent."""
        if what == CANCEL:
            return {"decision_id": self.id(number)}
        value = worth(number) if what == EVENT else 0.0
        return {"id": f"{what} {number}", "decision_id": self.id(number), "value": value}

    def enter(self, what: str, number: int) -> None:
        route = "revise" if what == REFUND else what
        answer, again = self.send(route, self.body(what, number))
        self._check(answer, again, number)
        self._told.entries.append((what, number))

    def enter_many(self, what: str, numbers: list[int]) -> None:
        answer, again = self.send(
            f"{what}/batch", {f"{what}s": [self.body(what, number) for number in numbers]}
        )
        for number, receipt in zip(numbers, answer["receipts"], strict=True):
            self._check(receipt, again, number)
        self._told.entries += [(what, number) for number in numbers]

    def _check(self, receipt: dict[str, Any], again: bool, number: int) -> None:
        made = number in self._told.decisions
        fine = {*self._told.fine, "applied"} if made else {"parked"}
        if again:
            fine.add("duplicate")
        if receipt["status"] not in fine:
            raise Wrong(f"an entry for {number} is {receipt}")

    def again(self) -> None:
        """Ask for something that was acknowledged, by this caller or by another one."""
        number = self._rng.choice(self._told.numbers[-200:])
        before = self._told.decisions[number]
        answer, _ = self.send("decide", {"key": self.key(number)})
        if answer != before:
            raise Wrong(f"the decision {number} was {before}, is {answer}")
        if self._told.entries:
            what, number = self._rng.choice(self._told.entries[-200:])
            receipt, _ = self.send("revise" if what == REFUND else what, self.body(what, number))
            if receipt["status"] != "duplicate":
                raise Wrong(f"the {what} of {number} again is {receipt}")


class Crowd:
    """Callers in threads, for several bandits; leaving it stops them and says what went wrong."""

    def __init__(
        self,
        port: int,
        bandits: list[str],
        *,
        callers: int = 16,
        seed: int = 0,
        fine: tuple[str, ...] = (),
    ) -> None:
        self.told = {bandit: Told(bandit, fine) for bandit in bandits}
        self._stop = threading.Event()
        self.callers = [
            Caller(port, told, k, callers, self._stop, seed)
            for told in self.told.values()
            for k in range(callers)
        ]
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(caller,), daemon=True)
            for caller in self.callers
        ]

    def _run(self, caller: Caller) -> None:
        try:
            caller.run()
        except BaseException as error:
            self.failed.append(error)

    @property
    def acknowledged(self) -> int:
        """How much is known to be there, in all."""
        return sum(map(len, self.told.values()))

    @property
    def broken(self) -> int:
        """How many connections ended without an answer."""
        return sum(caller.broken for caller in self.callers)

    @property
    def refused(self) -> set[str]:
        """What was said with a 503."""
        return set().union(*(caller.refused for caller in self.callers))

    def wait_for(self, more: int, seconds: float = PATIENCE) -> None:
        """Wait until so much more has been acknowledged."""
        goal, end = self.acknowledged + more, time.monotonic() + seconds
        while self.acknowledged < goal:
            if self.failed:
                raise self.failed[0]
            assert time.monotonic() < end, f"nothing was acknowledged for {seconds:g} s"
            time.sleep(0.002)

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE if kind is None else 0.0)
        if kind is None:
            if self.failed:
                raise self.failed[0]
            assert not any(thread.is_alive() for thread in self._threads), "a caller hangs"
