"""Kill a service under load, again and again, and see what is left.

``python -m tests.live.service.kills --kills 100`` starts `zib serve` on an SQLite file (with
``--postgres`` two workers on a PostgreSQL server), lets many connections decide, report, revise and
cancel, kills the process with SIGKILL at a random moment and starts it again, while the callers go
on and repeat what got no answer. Of several workers it kills one, or their supervisor, or all.
After each kill of everything, and at the end, it looks past the package whether everything
acknowledged is there exactly as it was acknowledged, nothing is there twice, and the sums are the
fold of the log; the package's own check and replay have to agree.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import zib
from tests.live import stored
from tests.live.naive import Naive
from tests.live.scene import sound
from tests.live.servers import Server
from tests.live.service.callers import CANCEL, Crowd, Told, decision_id, worth
from tests.live.service.running import BANDIT, Running, alive
from tests.live.service.wire import wait_until
from zib.core.entry import interpreted

WINDOW = 3600.0
LIVES = 10  # of one pair of bandits; then new ones, so that folding the whole log stays quick
LONGEST = 0.6  # seconds from the first acknowledgement to the kill
ORPHANS_WITHIN = 30.0  # seconds for workers to end when their supervisor is gone
CALLERS = 16  # connections for each of two bandits


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


def lost(kept: Naive, told: Told) -> list[str]:
    """Return what was acknowledged and is not there as it was."""
    found = []
    for number, answer in list(told.decisions.items()):
        made = kept.decisions.get(answer["id"])
        if made is None or (BANDIT["arms"][made.arm], made.at) != (
            answer["arm"],
            round(answer["at"] * 1e6),
        ):
            found.append(f"{told.bandit}: decision {number} was {answer}, is {made}")
    there = {entry.id: (entry.decision, entry.value) for entry in kept.entries}
    gone = {entry.decision for entry in kept.entries if entry.kind == "cancel"}
    for what, number in list(told.entries):
        id = decision_id(told.bandit, f"key {number}")
        if what == CANCEL:
            if id not in gone:
                found.append(f"{told.bandit}: {number} is not cancelled")
        elif there.get(f"{what} {number}") != (id, worth(number) if what == "event" else 0.0):
            found.append(f"{told.bandit}: {what} {number} is {there.get(f'{what} {number}')}")
    return found


def looked(database: str, told: Told) -> list[str]:
    """Return what is missing; fail if the sums are not those of the log, or an id is twice."""
    return lost(stored.check(database, naive(), told.bandit), told)


class Killer:
    """Kills a service, and keeps account of it."""

    def __init__(self, folder: Path, database: str, *, workers: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.service = Running(folder, database=database, server={"workers": workers})
        self.several = workers > 1
        self.kills: Counter[str] = Counter()
        self.acknowledged = self.broken = 0
        self.missing: list[str] = []

    def life(self, number: int, lives: int) -> None:
        """Kill so many times while the callers of a new pair of bandits go on."""
        self.service.bandits = {f"red{number}": BANDIT, f"blue{number}": BANDIT}
        self.service.start()
        with Crowd(
            self.service.port, list(self.service.bandits), callers=CALLERS, seed=number
        ) as crowd:
            for _ in range(lives):
                crowd.wait_for(1)
                time.sleep(self.rng.uniform(0.0, LONGEST))
                self.kill(crowd)
            crowd.wait_for(20)
        ended = self.service.stop()
        assert ended == 0, f"told to stop, it ended with {ended}:\n{self.service.words()}"
        self.acknowledged += crowd.acknowledged
        self.broken += crowd.broken
        for bandit, told in crowd.told.items():
            self.missing += looked(self.service.database, told)
            with (
                interpreted(),
                zib.live.Ledger(self.service.database, bandit, background=False) as ledger,
            ):
                sound(ledger)
                again = ledger.replay()
                assert again, str(again)
                assert again.replayed == again.decisions

    def kill(self, crowd: Crowd) -> None:
        whom = self.rng.choice(["worker", "supervisor", "everybody"]) if self.several else "process"
        self.kills[whom] += 1
        workers = self.service.workers()
        if whom == "worker":  # the supervisor starts another one
            os.kill(self.rng.choice(workers), signal.SIGKILL)
            return
        if whom == "supervisor":
            os.kill(self.service.pid, signal.SIGKILL)
            assert self.service.process is not None
            self.service.process.wait()
            wait_until(
                lambda: not any(map(alive, workers)), ORPHANS_WITHIN, "the end of the orphans"
            )
        else:
            self.service.kill()
        stored.wait_for_the_last_commit(self.service.database)
        if not self.several:  # quick to look at before anything is recovered
            database = copied(self.service.database, self.service.folder)
            for told in crowd.told.values():
                self.missing += lost(
                    stored.log(database, naive(), stored.number(database, told.bandit)), told
                )
        self.service.start()


def naive() -> Naive:
    return Naive(window=round(WINDOW * 1e6))


def run(folder: Path, database: str, *, kills: int, seed: int, workers: int = 1) -> dict[str, Any]:
    """Kill so many times, and return how much was acknowledged and what was lost."""
    start = time.monotonic()
    killer = Killer(folder, database, workers=workers, seed=seed)
    try:
        for number, first in enumerate(range(0, kills, LIVES)):
            killer.life(number, min(LIVES, kills - first))
    finally:
        killer.service.kill()
    return {
        "kills": dict(killer.kills),
        "acknowledged": killer.acknowledged,
        "connections broken": killer.broken,
        "lost": killer.missing,
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    """Kill, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.live.service.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="two workers on PostgreSQL")
    chosen = parser.parse_args()
    server = Server(durable=True) if chosen.postgres else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = run(
                Path(folder),
                "live.db" if server is None else server.fresh(),
                kills=chosen.kills,
                seed=chosen.seed,
                workers=1 if server is None else 2,
            )
    finally:
        if server is not None:
            server.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
