"""A shop that is not there: days of history, and visitors who come by HTTP while one looks.

Five prices of one product. The dearest sells hardly ever; two are close, of which one was best and
sells worse since yesterday. Orders come seconds to minutes after a visit. Some are reported twice,
late, before their decision, or with an id that nobody knows, and some are sent back.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zib.core.validate import InvalidParameterError
from zib.live.answers import Decision, LedgerError
from zib.live.book import Reported, Work, decision_id
from zib.live.ledger import Ledger, inside
from zib.live.outcome import EVENT, REVISION
from zib.live.service.config import DATABASE, Config, Server

NAME = "simulated-prices"
CHANCES = {"9 €": 0.040, "12 €": 0.038, "15 €": 0.052, "19 €": 0.038, "29 €": 0.008}
WORSE = ("15 €", 0.036)  # since `WORSE_FOR`
WORSE_FOR = 86_400.0
LATER = "29 €"  # an arm that was added by hand after a day
MORE_ITEMS = 0.35  # bought besides the first, on average
HALF, SPREAD = 12.0, 0.9  # of the delay, log-normal: its median in seconds, and sigma
DAYS = 3
STEP = 1_800.0  # seconds of history that are put in at once
HALT = 600.0  # seconds before now that it ends: what was ordered until then has been reported
THEN = 0.35  # visitors a second in the history, on average over the day
NOW = 20.0  # while one looks
CUSTOMERS = 20_000
TICK = 0.05
MOST_AT_ONCE = 500  # visits under way

CONFIG = f"""
database = "demo.db"
[bandit.{NAME}]
arms = {list(CHANCES)}
window = "3min"
grace = "1min"
holdout = 0.05
park = "2min"
"""


class Visitors:
    """Who comes, buys and when; all of it drawn."""

    def __init__(self, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)

    def number(self, mean: float) -> int:
        """Return how many come."""
        return int(self._rng.poisson(mean))

    def unit(self) -> str:
        """Return who it is."""
        return f"customer-{self._rng.integers(CUSTOMERS)}"

    def one_in(self, n: float) -> bool:
        """Return whether something rare happens."""
        return bool(self._rng.random() < 1.0 / n)

    def seconds(self, low: float, high: float) -> float:
        """Return a time in between."""
        return float(self._rng.uniform(low, high))

    def order(self, arm: Any, *, worse: bool) -> tuple[float, float] | None:
        """Return after how many seconds somebody buys, and for how much; None: not."""
        chance = CHANCES.get(arm, 0.03)  # of an arm that somebody has added by hand
        if worse and arm == WORSE[0]:
            chance = WORSE[1]
        if self._rng.random() >= chance:
            return None
        price = float(arm.split()[0]) if arm in CHANCES else 10.0
        amount = price * (1 + int(self._rng.poisson(MORE_ITEMS)))
        delay = HALF * np.exp(SPREAD * self._rng.standard_normal())
        return float(min(delay, 0.75 * HALT)), amount


# ------------------------------------------------------------------------------------- the history


def fill(ledger: Ledger, clock: list[float], until: float) -> int:
    """Put days of visits into a ledger whose clock is `clock`; return how many visits."""
    parts, visitors, made = inside(ledger), Visitors(seed=0), 0
    for start in until - HALT - STEP * np.arange(DAYS * 86_400.0 / STEP, 0.0, -1.0):
        clock[0] = start + STEP
        if LATER not in ledger.arms and until - start < (DAYS - 1) * 86_400.0:
            ledger.add_arm(LATER, who="demo")
        busy = 1.0 - 0.6 * np.cos(2.0 * np.pi * start / 86_400.0)
        times = sorted(
            visitors.seconds(start, start + STEP)
            for _ in range(visitors.number(THEN * busy * STEP))
        )
        asked = [
            parts.requests.asked(f"past-{made + k}", visitors.unit(), None, None, at)
            for k, at in enumerate(times)
        ]
        decisions: list[Decision] = parts.writer.do(Work(parts.book, asked=asked))
        reports: list[Reported] = []
        for decision in decisions:
            order = visitors.order(decision.arm, worse=until - decision.at < WORSE_FOR)
            if order is not None:
                reports += _reports(parts.requests, visitors, decision, *order)
        parts.writer.do(Work(parts.book, reported=reports))
        ledger.refresh()
        made += len(decisions)
    return made


def _reports(
    requests: Any, visitors: Visitors, decision: Decision, delay: float, amount: float
) -> Iterator[Reported]:
    """Yield what is reported of an order, when it happened."""
    at = decision.at + delay
    yield requests.reported(EVENT, f"order-{decision.id}", decision.id, amount, at, at)
    if visitors.one_in(50):
        yield requests.reported(EVENT, f"order-{decision.id}", decision.id, amount, at, at + 1.0)
    if visitors.one_in(400):
        yield requests.reported(EVENT, f"lost-{decision.id}", f"no-{decision.id}", amount, at, at)
    if visitors.one_in(30):
        back = at + visitors.seconds(10.0, 90.0)
        yield requests.reported(REVISION, f"back-{decision.id}", decision.id, 0.0, back, back)


# --------------------------------------------------------------------------------- while one looks


async def traffic(address: str, rate: float = NOW) -> None:
    """Send visits and orders to a service, until cancelled."""
    from zib.live.client import AsyncClient

    visitors, tasks = Visitors(), set[asyncio.Task[None]]()
    async with AsyncClient(address, NAME, timeout=5.0) as client:

        async def visit(key: str) -> None:
            with suppress(LedgerError, InvalidParameterError):  # such as: all arms are paused
                await _visit(client, visitors, key)

        made, due = 0, time.monotonic()
        while True:
            for _ in range(visitors.number(rate * TICK) if len(tasks) < MOST_AT_ONCE else 0):
                made += 1
                task = asyncio.create_task(visit(f"visit-{made}"))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            due = max(due + TICK, time.monotonic() - 1.0)
            await asyncio.sleep(max(due - time.monotonic(), 0.0))


async def _visit(client: Any, visitors: Visitors, key: str) -> None:
    """Come, look at the price, and perhaps buy."""
    unit, id = visitors.unit(), decision_id(NAME, key)
    if visitors.one_in(2_000):  # the order overtakes the visit
        await client.event(f"order-{id}", id, 12.0)
        await asyncio.sleep(2.0)
        await client.decide(key, unit=unit)
        return
    decision = await client.decide(key, unit=unit)
    if visitors.one_in(500):  # the page was closed before the price was seen
        await client.cancel(decision.id)
        return
    order = visitors.order(decision.arm, worse=True)
    if order is None:
        return
    delay, amount = order
    await asyncio.sleep(delay if not visitors.one_in(60) else visitors.seconds(185.0, 235.0))
    await client.event(f"order-{id}", id if not visitors.one_in(200) else f"lost-{id}", amount)
    if visitors.one_in(50):
        await client.event(f"order-{id}", id, amount)
    if visitors.one_in(30):
        await asyncio.sleep(visitors.seconds(10.0, 90.0))
        await client.revise(f"back-{id}", id, 0.0)


def main() -> None:
    """Send traffic to the address that is given, until the standard input ends."""
    work: Coroutine[Any, Any, None] = traffic(sys.argv[1])
    threading.Thread(target=asyncio.run, args=(work,), daemon=True).start()
    sys.stdin.buffer.read()


# ------------------------------------------------------------------------------------- the command


@contextmanager
def staged(
    changes: Mapping[str, Any], tell: Callable[[str], None]
) -> Iterator[tuple[Config, Callable[[str], None]]]:
    """Yield what to serve, and a function that starts the traffic to an address.

    Parameters
    ----------
    changes
        As for `Config.load`.
    tell
        Takes sentences for the user.
    """
    os.environ.pop(DATABASE, None)  # nobody's own database gets simulated visits
    server = {"port": _free_port(), **changes.get("server", {})}
    with TemporaryDirectory(prefix="zib-demo-") as folder:
        path = Path(folder) / "live.toml"
        path.write_text(CONFIG, encoding="utf-8")
        config = Config.load(path, {**changes, "server": server})
        tell(f"Simulating {DAYS} days of a shop with {len(CHANCES)} prices ...")
        now = time.time()
        clock = [now - HALT - DAYS * 86_400.0]
        (bandit,) = config.bandits
        arms = [arm for arm in CHANCES if arm != LATER]
        with Ledger(
            config.database, NAME, arms=arms, background=False,
            clock=lambda: clock[0], **bandit.parameters,
        ) as ledger:  # fmt: skip
            visits = fill(ledger, clock, now)
        tell(f"{visits:,} simulated visits are in a database that is removed at the end.")
        started: list[subprocess.Popen[bytes]] = []

        def play(address: str) -> None:
            command = [sys.executable, "-m", __name__, address]
            # a session of its own: Ctrl-C reaches the service, which is then left in order
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
            tell(f"About {NOW:.0f} simulated visitors a second come to {address} from now on.")

        try:
            yield config, play
        finally:
            for process in started:
                process.communicate()


def _free_port() -> int:
    """Return the usual port, or any if that is taken."""
    usual = int(Server().port)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            return 0
    return usual


if __name__ == "__main__":
    main()
