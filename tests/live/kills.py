"""Kill a ledger's process under load, again and again, and see what is left.

``python -m tests.live.kills DATABASE --kills 100`` forks a process that decides and reports events
from many threads and notes in a file every id that was acknowledged; kills it with SIGKILL at a
random moment; and looks, past the package, whether everything acknowledged is there, nothing is
there twice, and the sums are the fold of the log. Then a new process sends everything of the killed
one again, as clients do that got no answer: what was acknowledged has to come back as a duplicate.

Processes are forked from one that has imported the package and opened nothing, so a life costs
milliseconds to start.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zib
from tests.live import stored
from tests.live.naive import Naive
from tests.live.scene import sound
from zib.core.entry import interpreted
from zib.live.answers import Transient

WINDOW = 3600.0
ARMS = ["A", "B", "C"]
THREADS = 16
LIVES = 10  # of one bandit; then a new one, so that folding its whole log stays quick
LONGEST = 0.3  # seconds from the first acknowledgement to the kill


def opened(database: str, name: str, **more: Any) -> Any:
    return zib.live.Ledger(database, name, arms=ARMS, window=WINDOW, draws=50, **more)


def worth(number: int) -> float:
    """What the event of the decision with this number says: exact in binary, some zeros."""
    return (number % 7) * 0.25


# ------------------------------------------------------------------------- in a process of its own


def live(database: str, name: str, life: str, notes: Path) -> None:
    """Decide and report events from many threads until killed, noting what was acknowledged."""
    ledger = opened(database, name)
    note = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def caller(number: int) -> None:
        while True:
            key = f"{life}-{number}"
            if number % 5 == 4:  # the event overtakes its decision
                ledger.event(f"event {key}", ledger.decision_id(key), worth(number))
                os.write(note, f"event {number}\n".encode())
            decision = ledger.decide(key)
            os.write(note, f"decision {number} {decision.id} {decision.arm}\n".encode())
            if number % 5 < 2:
                ledger.event(f"event {key}", decision.id, worth(number))
                os.write(note, f"event {number}\n".encode())
            if number % 10 == 1:
                ledger.revise(f"refund {key}", decision.id, 0.0)
                os.write(note, f"refund {number}\n".encode())
            number += THREADS

    for thread in range(THREADS):
        threading.Thread(target=caller, args=(thread,), daemon=True).start()
    threading.Event().wait()


def again(database: str, name: str, life: str, notes: list[list[str]]) -> None:
    """Send what was acknowledged once more: the same answers, and nothing but duplicates."""
    with opened(database, name, background=False) as ledger:
        keys = [f"{life}-{number}" for what, number, *_ in notes if what == "decision"]
        told = [answer for what, _, *answer in notes if what == "decision"]
        assert [[d.id, d.arm] for d in ledger.decide_many(keys)] == told
        for what, send in (("event", ledger.event_many), ("refund", ledger.revise_many)):
            calls = [
                (
                    f"{what} {life}-{number}",
                    ledger.decision_id(f"{life}-{number}"),
                    worth(int(number)) if what == "event" else 0.0,
                )
                for kind, number, *_ in notes
                if kind == what
            ]
            assert {receipt.status for receipt in send(calls)} <= {"duplicate"}
        sound(ledger)


def persistently(work: Callable[[], None]) -> None:
    """Try again while the server is away, as whoever starts a process does."""
    end = time.monotonic() + 60.0
    while True:
        try:
            return work()
        except Transient:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a process of its own and return its id."""
    child = os.fork()
    if child == 0:
        try:
            with interpreted():  # a life is too short to compile anything
                persistently(work)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


# ------------------------------------------------------------------------------------- from outside


def copied(database: str, folder: Path) -> str:
    """Return a copy of what a killed process left, so that looking at it recovers nothing."""
    if "://" in database:
        return database
    for old in folder.glob("copy*"):
        old.unlink()
    for end in ("", "-wal"):
        if Path(database + end).exists():
            shutil.copy(database + end, folder / f"copy{end}")
    return str(folder / "copy")


def lost(database: str, name: str, life: str, notes: list[list[str]]) -> list[str]:
    """Return what was acknowledged and is not there; fail if the sums are not those of the log."""
    kept = stored.check(database, Naive(window=round(WINDOW * 1e6)), name)
    there = {entry.id for entry in kept.entries}
    found = []
    for what, number, *answer in notes:
        if what == "decision":
            id, arm = answer
            made = kept.decisions.get(id)
            if made is None or ARMS[made.arm] != arm:
                found.append(f"{life}: {what} {number} was {answer}, is {made}")
        elif f"{what} {life}-{number}" not in there:
            found.append(f"{life}: {what} {number} is not there")
    return found


def run(database: str, *, kills: int, seed: int) -> dict[str, Any]:
    """Kill so many times, and return how much was acknowledged and what was lost."""
    rng = random.Random(seed)
    acknowledged, missing, start = 0, [], time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(kills):
            name, life, file = f"bandit {number // LIVES}", f"life {number}", folder / str(number)
            child = forked(lambda: live(database, name, life, file))  # noqa: B023
            end = time.monotonic() + 60.0
            while not (file.exists() and file.stat().st_size):
                time.sleep(0.001)
                assert time.monotonic() < end, "nothing was acknowledged for a minute"
                assert os.waitpid(child, os.WNOHANG) == (0, 0), "the process ended by itself"
            time.sleep(rng.uniform(0.0, LONGEST))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            stored.wait_for_the_last_commit(database)
            lines = file.read_text().split("\n")[:-1]  # the last one may be half written
            notes = [line.split() for line in lines]
            acknowledged += len(notes)
            missing += lost(copied(database, folder), name, life, notes)
            child = forked(lambda: again(database, name, life, notes))  # noqa: B023
            assert os.waitpid(child, 0)[1] == 0, "sent again, the answers differ"
            missing += lost(database, name, life, notes)
    seconds = time.monotonic() - start
    return {"kills": kills, "acknowledged": acknowledged, "lost": missing, "seconds": seconds}


def main() -> None:
    """Kill, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.kills", description=__doc__)
    parser.add_argument("database", help="path of a new SQLite file, or postgresql://…")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(json.dumps(run(chosen.database, kills=chosen.kills, seed=chosen.seed)))


if __name__ == "__main__":
    main()
