"""A simulated round: environment, decision, learning, regret. Ten arms, one thread."""

from __future__ import annotations

from typing import Any

import numpy as np

import zib
from benchmarks import bare, scene
from benchmarks._measure import Part, Row, Work, interleaved
from benchmarks.online import player
from benchmarks.peers import Drawing, Peer, available

ENV = zib.env.GaussianMAB(means=scene.MEANS, probs=scene.PROBS, sigma=scene.SIGMA)
ZIUCB = zib.mab.ZIUCB(horizon=scene.HORIZON, sigma=scene.SIGMA, occurrence="hoeffding")
ZIUCB_KL = zib.mab.ZIUCB(horizon=scene.HORIZON, sigma=scene.SIGMA)
ZITS = zib.mab.ZITS(horizon=scene.HORIZON, sigma=scene.SIGMA)
NORMAL_TS = zib.mab.NormalTS(sigma=scene.SIGMA)

# kind, spec, target in ns; UCB1 and NormalTS are what the peers play, to compare like with like
OURS: dict[str, tuple[str, Any, float | None]] = {
    "zib ZIUCB hoeffding": ("ucb", ZIUCB, 60.0),
    "zib ZIUCB": ("ucb", ZIUCB_KL, 60.0),
    "zib ZITS": ("ts", ZITS, 1200.0),
    "zib UCB1": ("ucb", zib.mab.UCB1(), None),
    "zib NormalTS": ("ts", NORMAL_TS, None),
    "zib ZIKLUCB": ("limit", zib.mab.ZIKLUCB(sigma=scene.SIGMA), 1500.0),
    "zib ZIIMED": ("limit", zib.mab.ZIIMED(sigma=scene.SIGMA), 1000.0),
    "zib ZIPosterior": ("limit", zib.mab.ZIPosterior(sigma=scene.SIGMA), 1000.0),
    "zib ZIPosterior learned": ("limit", zib.mab.ZIPosterior(prior="learned"), 1000.0),
    "zib ZIAdaptive": ("limit", zib.mab.ZIAdaptive(), 1000.0),
}
TIMES_PEERS = 50.0
WITHIN_BARE = 2.0
SHORT = 75_000


def _ours(spec: Any) -> Work:
    def work(rounds: int) -> object:
        return zib.simulate(
            [spec], ENV, horizon=rounds, replications=1, backend="serial", progress=False
        )

    return work


def _bare() -> dict[str, Work]:
    rng = np.random.default_rng(0)
    problem = (scene.MEANS, scene.PROBS, scene.SIGMA)
    return {
        "zib ZIUCB hoeffding": lambda n: bare.zi_ucb(scene.HORIZON, n, *problem, False, rng),
        "zib ZIUCB": lambda n: bare.zi_ucb(scene.HORIZON, n, *problem, True, rng),
        "zib ZITS": lambda n: bare.zi_ts(scene.HORIZON, n, *problem, rng),
    }


def _peer(peer: Peer, kind: str) -> Work:
    if peer.simulate is not None:
        simulate = peer.simulate
        return lambda rounds: simulate(kind, rounds)
    return player(*peer.online(kind), Drawing())


def run(quick: bool) -> list[Row]:
    """Measure us, the bare loops and the peers' simulators, turn by turn."""
    peers = [(p, kind) for p in available() if isinstance(p, Peer) for kind in p.kinds]
    loops = _bare()
    works: dict[str, Work] = {}
    for name, (_, spec, _) in OURS.items():
        works[name] = _ours(spec)
        if name in loops:
            works[f"bare {name}"] = loops[name]
    rounds = dict.fromkeys(works, 200_000 if quick else scene.HORIZON)
    for name, (_, spec, _) in OURS.items():  # a run of the study's length: set-up weighs more
        works[f"short {name}"] = _ours(spec)
        rounds[f"short {name}"] = SHORT
    works |= {f"{peer.name} {kind}": _peer(peer, kind) for peer, kind in peers}
    best = interleaved(
        works, seconds=0.05 if quick else 0.2, repeats=3 if quick else 7, rounds=rounds
    )

    rows: list[Row] = []
    for name, (kind, _, target) in OURS.items():
        ours = best[name]
        rows.append(Row("simulated", "one round", name, 1e9 * ours, "ns", target))
        short = 1e9 * best[f"short {name}"]
        rows.append(Row("simulated", f"one round of {SHORT:,}", name, short, "ns", target))
        if name in loops:
            loop = best[f"bare {name}"]
            rows.append(Row("simulated", "one round", f"bare loop of {name[4:]}", 1e9 * loop, "ns"))
            rows.append(Row("simulated", "ours / bare loop", name, ours / loop, "×", WITHIN_BARE))
        rivals = {peer.name: best[f"{peer.name} {kind}"] for peer, own in peers if own == kind}
        if rivals:
            fastest = min(rivals, key=rivals.__getitem__)
            rows.append(
                Row(
                    "simulated",
                    "fastest peer / ours",
                    name,
                    rivals[fastest] / ours,
                    "×",
                    TIMES_PEERS,
                    fastest,
                    at_least=True,
                )
            )
    main = {"ucb": "zib ZIUCB hoeffding", "ts": "zib ZITS"}
    for peer, kind in peers:
        value = best[f"{peer.name} {kind}"]
        note = f"{value / best[main[kind]]:,.0f} × {main[kind]}; {peer.simulator}"
        who = f"{peer.name}, {kind.upper()} kind"
        rows.append(Row("simulated", "one round", who, 1e9 * value, "ns", note=note))
    return rows


PARTS: dict[str, Part] = {"rounds": run}
