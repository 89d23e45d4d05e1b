"""One decision at a time: select an arm, learn its reward. Ten arms, one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zib
from benchmarks import scene
from benchmarks._measure import Row, Work, interleaved
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


def run(quick: bool) -> list[Row]:
    """Measure us and every peer, turn by turn."""
    rows: list[Row] = []
    found = list(available())
    present = [peer for peer in found if isinstance(peer, Peer)]
    for kind, specs in OURS.items():
        works: dict[str, Work] = {name: _ours(spec) for name, spec in specs.items()}
        works |= {p.name: player(*p.online(kind)) for p in present if kind in p.kinds}
        best = interleaved(works, seconds=0.05 if quick else 0.2, repeats=3 if quick else 7)
        notes = {p.name: p.notes.get(kind, "") for p in present}
        for name, value in best.items():
            target = TARGET[kind] if name in specs else None
            rows.append(
                Row("online", WHAT[kind], name, 1e6 * value, "µs", target, notes.get(name, ""))
            )
        ours = best[next(iter(specs))]
        others = {name: value for name, value in best.items() if name not in specs}
        if others:
            fastest = min(others, key=others.__getitem__)
            rows.append(
                Row(
                    "online",
                    WHAT[kind],
                    f"fastest peer / {next(iter(specs))}",
                    others[fastest] / ours,
                    "×",
                    1.0 if kind == "ucb" else None,
                    fastest,
                    at_least=True,
                )
            )
    rows += [
        Row("online", "not measured", peer.name, None, "", note=peer.reason)
        for peer in found
        if not isinstance(peer, Peer)
    ]
    return rows
