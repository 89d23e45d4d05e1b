"""One decision at a time: select an arm, learn its reward. Ten arms, one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import zib
from benchmarks import scene
from benchmarks._measure import Part, Row, Work, interleaved
from benchmarks.peers import Peer, available

OURS: dict[str, dict[str, Any]] = {
    "ucb": {
        "zib ZIUCB": zib.mab.ZIUCB(horizon=scene.HORIZON, sigma=scene.SIGMA),
        "zib ZIUCB hoeffding": zib.mab.ZIUCB(
            horizon=scene.HORIZON, sigma=scene.SIGMA, occurrence="hoeffding"
        ),
        "zib UCB1": zib.mab.UCB1(),
    },
    "ts": {
        "zib ZITS": zib.mab.ZITS(horizon=scene.HORIZON, sigma=scene.SIGMA),
        "zib NormalTS": zib.mab.NormalTS(sigma=scene.SIGMA),
    },
    # what no peer has; the last is what a Bandit plays that was given no policy
    "limit": {
        "zib ZIKLUCB": zib.mab.ZIKLUCB(sigma=scene.SIGMA),
        "zib ZIIMED": zib.mab.ZIIMED(sigma=scene.SIGMA),
        "zib ZIPosterior": zib.mab.ZIPosterior(sigma=scene.SIGMA),
        "zib ZIPosterior learned": zib.mab.ZIPosterior(prior="learned"),
        "zib ZIAdaptive": zib.mab.ZIAdaptive(),
    },
}
TARGET = {"ucb": 6.0, "ts": 20.0, "limit": 25.0}
WHAT = {
    "ucb": "select + update, UCB kind",
    "ts": "select + update, TS kind",
    "limit": "select + update, beyond the paper",
}


def player(
    select: Callable[[], Any],
    update: Callable[[Any, float], None],
    draw: Callable[[int], float] | None = None,
) -> Work:
    """Return a function that plays `n` rounds, rewards from `draw` or from a ready table."""
    table = scene.reward_table()
    mask = scene.mask()

    def ready(rounds: int) -> None:
        for t in range(rounds):
            arm = select()
            update(arm, table[arm][t & mask])

    def drawn(rounds: int) -> None:
        for _ in range(rounds):
            arm = select()
            update(arm, draw(arm))  # type: ignore[misc]

    return ready if draw is None else drawn


def _ours(spec: Any) -> Work:
    bandit = zib.Bandit(spec, n_arms=scene.N_ARMS, seed=0)
    return player(bandit.select, bandit.update)


def _turns(kind: str, quick: bool) -> list[Row]:
    """Measure us and every peer of a kind, turn by turn."""
    specs = OURS[kind]
    present = [peer for peer in available() if isinstance(peer, Peer) and kind in peer.kinds]
    works: dict[str, Work] = {name: _ours(spec) for name, spec in specs.items()}
    works |= {peer.name: player(*peer.online(kind)) for peer in present}
    best = interleaved(works, seconds=0.05 if quick else 0.2, repeats=3 if quick else 7)
    notes = {peer.name: peer.notes.get(kind, "") for peer in present}
    rows: list[Row] = []
    for name, value in best.items():
        target = TARGET[kind] if name in specs else None
        rows.append(Row("online", WHAT[kind], name, 1e6 * value, "µs", target, notes.get(name, "")))
    others = {peer.name: best[peer.name] for peer in present}
    if others:
        first = next(iter(specs))
        fastest = min(others, key=others.__getitem__)
        ratio = others[fastest] / best[first]
        who = f"fastest peer / {first}"
        goal = 1.0 if kind == "ucb" else None
        rows.append(Row("online", WHAT[kind], who, ratio, "×", goal, fastest, at_least=True))
    return rows


def _absent(quick: bool) -> list[Row]:
    return [
        Row("online", "not measured", peer.name, None, "", note=peer.reason)
        for peer in available()
        if not isinstance(peer, Peer)
    ]


# ------------------------------------------------------------------------- drawn from an allocation


def _repeat(call: Callable[[], object]) -> Work:
    def work(rounds: int) -> None:
        for _ in range(rounds):
            call()

    return work


def _round(bandit: zib.Bandit) -> None:
    bandit.update(bandit.select(return_propensity=True)[0], 0.0)


def _served(quick: bool) -> list[Row]:
    """Measure decisions with propensities: from a table, and with a table made anew."""
    specs = {"zib ZIUCB": OURS["ucb"]["zib ZIUCB"], "zib ZITS": OURS["ts"]["zib ZITS"],
             "zib ZIAdaptive": OURS["limit"]["zib ZIAdaptive"]}  # fmt: skip
    rows: list[Row] = []
    for who, spec in specs.items():
        bandit = zib.Bandit(spec, n_arms=scene.N_ARMS, seed=0)
        player(bandit.select, bandit.update)(1_000)
        calls: dict[str, Callable[[], object]] = {
            "select with propensity": partial(bandit.select, return_propensity=True),
            "select among three arms": partial(bandit.select, arms=[1, 2, 3]),
            "select with propensity after an update, and the update": partial(_round, bandit),
        }
        works = {what: _repeat(call) for what, call in calls.items()}
        best = interleaved(works, seconds=0.05 if quick else 0.2, repeats=3 if quick else 7)
        rows += [Row("online", what, who, 1e6 * value, "µs") for what, value in best.items()]
    return rows


# ---------------------------------------------------------------------------------------- many arms

MANY = 1_000
MOST_MS = 20.0


def _grown(rng: np.random.Generator) -> zib.Bandit:
    """Return a bandit with the default policy that has tried each of many arms ten times."""
    bandit = zib.Bandit(n_arms=MANY, seed=0)
    arms = np.repeat(np.arange(MANY), 10)
    paid = rng.random(arms.size) < 0.2
    bandit.update_many(arms.tolist(), np.where(paid, rng.lognormal(size=arms.size), 0.0))
    return bandit


def _many_arms(quick: bool) -> list[Row]:
    """Measure what happens rarely and may touch every arm; medians of processor times."""
    rng = np.random.default_rng(0)
    bandit, other = _grown(rng), _grown(rng)
    changes: dict[str, Callable[[int], object]] = {
        "add an arm": lambda i: bandit.add_arm(f"new {i}"),
        "remove an arm": lambda i: bandit.remove_arm(f"new {i}"),
        "merge": lambda i: bandit.merge(other),
        "revise a reward": lambda i: bandit.revise(i, 0.0, 1.0),
    }
    times: dict[str, list[float]] = {name: [] for name in changes}
    for i in range(3 if quick else 15):
        for name, change in changes.items():
            start = time.thread_time()
            change(i)
            times[name].append(1e3 * (time.thread_time() - start))
    note = "median, the first call (compiling) dropped"
    return [
        Row("online", f"{name}, {MANY:,} arms", "zib default policy",
            statistics.median(found[1:]), "ms", MOST_MS, note)
        for name, found in times.items()
    ]  # fmt: skip


PARTS: dict[str, Part] = {
    **{WHAT[kind]: partial(_turns, kind) for kind in OURS},
    "with propensities": _served,
    "many arms": _many_arms,
    "peers left out": _absent,
}
