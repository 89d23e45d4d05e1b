"""`play`: policies and their rivals in worlds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import zib
from zib.arena.generator import drawn
from zib.arena.outcome import TARGET, Match, Outcome
from zib.arena.rivals import DEFAULT, Entry, Rival, entered, rivals
from zib.arena.world import World
from zib.core import validate as check
from zib.core.spec import label_of
from zib.core.validate import InvalidParameterError
from zib.sim.plan import backend_for
from zib.sim.run import BACKENDS

FEWEST = 4  # replications: two in either half
Tell = Callable[[str, float], None]


def play(
    policies: Mapping[str, Entry] | Sequence[Entry] | None = None,
    worlds: Sequence[World] | None = None,
    *,
    replications: int = 100,
    seed: int = 0,
    target: float = TARGET,
    against: bool | Sequence[str] = True,
    workers: int | None = None,
    backend: str = "threads",
    store: Any = None,
    progress: Tell | None = None,
) -> Outcome:
    """Let policies compete with the default and its rivals, in every world.

    Parameters
    ----------
    policies
        What is entered besides the rivals, by label or in a row: policies, or functions of a
        `World` that return a policy (or None, to stay away). Nothing by default.
    worlds
        Where; by default ``zib.arena.drawn(seed=seed)``.
    replications
        How often each policy plays in each world.
    seed
        A whole number ≥ 0; with it everything can be played again.
    target
        What counts as close: so many times the best.
    against
        Whether the rivals of each world play (`zib.arena.rivals`), or the labels of those that do.
    workers, backend, store
        As for `zib.simulate`; ``"cuda"`` plays on a GPU what can be played there.
    progress
        A function that is told what is played and which share is done.

    Notes
    -----
    Ctrl-C returns what is finished, if a world is. In worlds with features a policy without
    features plays as if there were none, and a policy for features gets one model per arm, since
    all arms have the same.

    Examples
    --------
    >>> import zib.arena
    >>> places = zib.arena.drawn(2, seed=3, kinds="plain", horizon=300)
    >>> found = zib.arena.play({"UCB1": zib.mab.UCB1(scale=5.0)}, places, replications=4,
    ...                        against=["ZI adaptive", "ε-greedy"])
    >>> found.table()["policy"].tolist()[:3]
    ['ZI adaptive', 'ε-greedy', 'UCB1']
    """
    entries = _entries(policies)
    chosen = drawn(seed=seed) if worlds is None else _worlds(worlds)
    check.integer("replications", replications, FEWEST, 10_000_000)
    check.seed("seed", seed)
    check.real("target", target, 1.0)
    check.choice("backend", backend, BACKENDS)
    started = time.time()
    line_up = [_line_up(world, entries, against) for world in chosen]
    weights = np.array([_weight(world, len(who)) for world, who in zip(chosen, line_up)])
    before = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    matches: list[Match] = []
    first: dict[str, Any] = {}
    interrupted = False
    for i, (world, who) in enumerate(zip(chosen, line_up)):

        def tell(done: int, total: int, i: int = i, name: str = world.name) -> None:
            if progress is not None:
                share = done / max(total, 1)
                progress(name, float(before[i] + share * (before[i + 1] - before[i])))

        tell(0, 1)
        how = {"workers": workers, "store": store, "progress": tell}
        try:
            match, origin = _match(world, who, replications, seed, backend, how)
        except KeyboardInterrupt:
            if not matches:
                raise
            interrupted = True
            break
        matches.append(match)
        first = first or origin
    provenance: dict[str, Any] = {
        key: first[key] for key in ("zib", "numpy", "numba", "python", "platform") if key in first
    }
    provenance |= {
        "seed": seed,
        "backend": backend,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": time.time() - started,
    }
    played = {label for match in matches for label in match.labels}
    shown = tuple(label for label in dict.fromkeys([*entries, DEFAULT]) if label in played)
    return Outcome(tuple(matches), shown or tuple(entries), seed, target, provenance, interrupted)


def _entries(policies: Mapping[str, Entry] | Sequence[Entry] | None) -> dict[str, Entry]:
    """Return what is entered, by label, or raise."""
    if policies is None:
        return {}
    if isinstance(policies, Mapping):
        return {str(label): entry for label, entry in policies.items()}
    found: dict[str, Entry] = {}
    for entry in check.iterable("policies", policies):
        name = getattr(entry, "__name__", None) or label_of(entry)
        if name in found:
            raise InvalidParameterError(
                f"`policies` must have different labels, in a dictionary; got {name!r} twice"
            )
        found[name] = entry
    return found


def _worlds(worlds: Sequence[World]) -> list[World]:
    found = list(check.iterable("worlds", worlds))
    for world in found:
        if not isinstance(world, World):
            raise InvalidParameterError(
                f"`worlds` must hold worlds of zib.arena; got {check.shown(world)}"
            )
    if not found:
        raise InvalidParameterError("`worlds` must hold at least one world; got none")
    names = [world.name for world in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameterError(f"`worlds` must have different names; got {twice!r} twice")
    return found


def _line_up(
    world: World, entries: Mapping[str, Entry], against: bool | Sequence[str]
) -> list[Rival]:
    """Return who plays in a world; an entry replaces the rival of the same label."""
    there = rivals(world) if against is not False else []
    if not isinstance(against, bool):
        there = [rival for rival in there if rival.label in check.words("against", against)]
    found = {rival.label: rival for rival in there}
    for label, entry in entries.items():
        mine = entered(label, entry, world)
        if mine is not None:
            found[label] = mine
    if not found:
        raise InvalidParameterError(
            f"`policies` must hold a policy that plays in every world; none does in {world.name!r}"
        )
    return list(found.values())


def _weight(world: World, n_policies: int) -> float:
    """Return about how long a world takes: for the progress only."""
    d = sum(world.env.n_features) if world.contextual else 0
    return n_policies * world.horizon * (0.3 + 0.02 * world.n_arms * (1 + d))


def _match(
    world: World,
    who: Sequence[Rival],
    replications: int,
    seed: int,
    backend: str,
    how: Mapping[str, Any],
) -> tuple[Match, dict[str, Any]]:
    """Play in one world: everybody in its environment, then those who see another view of it."""
    views: dict[int, list[Rival]] = {}
    for rival in who:
        views.setdefault(0 if rival.env is None else id(rival.env), []).append(rival)
    regret: dict[str, Any] = {}
    hashes = []
    origin: dict[str, Any] = {}
    for some in views.values():
        env = world.env if some[0].env is None else some[0].env
        specs = {rival.label: rival.spec for rival in some}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
            result = zib.simulate(
                specs,
                env,
                horizon=world.horizon,
                replications=replications,
                seed=seed,
                checkpoints=[world.horizon],
                backend=backend_for(backend, specs.values(), env, seed),
                **how,
            )
        if not result.complete:
            raise KeyboardInterrupt
        regret |= dict(zip(result.labels, result.regret[:, :, -1]))
        hashes.append(str(result.provenance["plan_hash"]))
        origin = origin or result.provenance
    labels = tuple(rival.label for rival in who)
    told = tuple(rival.told for rival in who)
    runs = np.stack([regret[label] for label in labels])
    return Match(world, labels, told, runs, tuple(hashes)), origin
