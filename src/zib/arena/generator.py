"""Worlds drawn at random: kind, structure and every number, from one seed.

Claims about policies come from these worlds. Nobody can tune a policy to them, since nobody knows
them before the seed is drawn; with the seed anybody can draw them again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from zib.arena import arms
from zib.arena.arms import log_uniform
from zib.arena.features import with_features
from zib.arena.world import World
from zib.arena.worlds import LONGEST, chosen_kinds, cut, rand_log
from zib.core import validate as check
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError
from zib.env import MAB, Batched, DriftingMAB, Empirical, ZeroInflated

MOST = 10_000  # worlds at a time
HORIZONS = (1_000, 100_000)
DRIFTING_HORIZONS = (5_000, 100_000)
CONTEXTUAL_HORIZONS = (1_000, 5_000)
LARGEST_BATCH = 10_000
ENOUGH = 20  # the best arm can pay this often within the horizon, or nobody can learn anything
# how often a kind is drawn
WEIGHTS = {
    "plain": 8,
    "many": 2,
    "odd": 5,
    "drifting": 2,
    "batched": 2,
    "contextual": 2,
    "resampled": 1,
}
Rng = np.random.Generator


def drawn(
    n: int = 60,
    *,
    seed: int | None = None,
    kinds: Iterable[str] | str | None = None,
    horizon: int | None = None,
) -> list[World]:
    """Draw worlds at random.

    Parameters
    ----------
    n
        How many.
    seed
        A whole number ≥ 0 that the same worlds can be drawn with again; a fresh one by default,
        which the names of the worlds begin with.
    kinds
        Kinds to draw from (`zib.arena.KINDS`); all by default. Where there is no log to resample,
        a plain world takes the place of a resampled one.
    horizon
        Longest horizon that is drawn.

    Notes
    -----
    World i depends on seed, i, `kinds` and `horizon` only: the first worlds are the same however
    many are drawn. Scales are log-uniform: magnitudes over three decades, p from 1e-4 to 0.9,
    horizons from 1e3 to 1e5 (1e3 to 5e3 with features), arms from 2 to 500. A world in which the
    best arm cannot be expected to pay twenty times within the horizon is drawn again.

    Examples
    --------
    >>> for world in drawn(3, seed=1, kinds=["plain", "odd"]):
    ...     print(world.name)
    1-000 gain or lose
    1-001 losses possible, Gaussian
    1-002 losses possible, Gaussian
    >>> drawn(2, seed=1, kinds="odd")[1] == drawn(3, seed=1, kinds="odd")[1]
    True
    """
    check.integer("n", n, 1, MOST)
    longest = HORIZONS[1] if horizon is None else check.integer("horizon", horizon, 2, LONGEST)
    seed = secrets.randbits(32) if seed is None else check.seed("seed", seed)
    usable = {kind: WEIGHTS[kind] for kind in chosen_kinds(kinds)}
    amounts = _amounts() if "resampled" in usable else None
    if amounts is None and set(usable) == {"resampled"}:
        raise InvalidParameterError(
            f"`kinds` must name a kind that can be drawn here; got {check.shown(kinds)}"
        )
    weights = np.array([float(weight) for weight in usable.values()])
    found = []
    for i in range(n):
        rng = stream(seed, Role.INSTANCE, i)
        kind = list(usable)[int(rng.choice(len(usable), p=weights / weights.sum()))]
        if kind == "resampled" and amounts is None:
            kind = "plain"
        found.append(_one(rng, kind, f"{seed}-{i:03d}", amounts, longest))
    return cut(found, horizon)


def _horizon(rng: Rng, low: int, high: int, longest: int) -> int:
    """Draw a horizon of at most `longest`, or `low` where that is longer."""
    return round(float(log_uniform(rng, low, max(min(high, longest), low))))


def _one(rng: Rng, kind: str, name: str, amounts: Any, longest: int) -> World:
    if kind == "batched":
        return _batched(rng, name, longest)
    if kind == "contextual":
        return _contextual(rng, name, longest)
    if kind == "drifting":
        return _drifting(rng, name, longest)
    makers: dict[str, Callable[[Rng], tuple[str, MAB]]] = {
        "plain": _plain,
        "many": _many,
        "odd": _odd,
        "resampled": lambda r: _resampled(r, amounts),
    }
    while True:
        words, env = makers[kind](rng)
        horizon = _horizon(rng, *HORIZONS, longest)
        if env.probs[env.best_arm] * horizon >= ENOUGH and env.gaps.max() > 0.0:
            break
    about = f"p {_span(env.probs)}, means of what is paid {_span(env.magnitudes)}"
    return World(name=f"{name} {words}", kind=kind, about=about, env=env, horizon=horizon)


def _span(values: Any) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _batched(rng: Rng, name: str, longest: int) -> World:
    inside = _one(rng, "plain", name, None, longest)
    size = round(float(log_uniform(rng, 10, min(LARGEST_BATCH, inside.horizon / 4))))
    env = Batched(inside.env, size=size)
    return replace(inside, name=f"{inside.name}, batches of {size}", kind="batched", env=env)


# ---------------------------------------------------------------------------------- multi-armed


def _some_kind(rng: Rng) -> str:
    return list(arms.KINDS)[int(rng.integers(len(arms.KINDS)))]


def _range(rng: Rng, low: float, high: float, widest: float) -> tuple[float, float]:
    """Draw an interval inside [low, high] whose ends differ by a factor of at most `widest`."""
    width = float(log_uniform(rng, 1.2, min(widest, high / low)))
    start = float(log_uniform(rng, low, high / width))
    return start, start * width


def _plain(rng: Rng, n_arms: tuple[int, int] = (2, 20)) -> tuple[str, MAB]:
    kind = _some_kind(rng)
    law = arms.KINDS[kind].words
    k = int(np.rint(log_uniform(rng, *n_arms)))
    each = bool(rng.random() < 0.3)
    scale = float(log_uniform(rng, 0.1, 100.0))
    probs = _range(rng, 1e-4, 0.9, 30.0)
    means = _range(rng, scale, 10.0 * scale, 10.0)
    structure = ("any", "any", "opposed", "only p", "only magnitudes", "silent", "dense")[
        int(rng.integers(7))
    ]
    if structure == "opposed":
        probs, spread = _range(rng, 1e-3, 0.9, 1e3), float(rng.uniform(0.1, 0.7))
        made = arms.opposed(rng, kind, k, probs=probs, spread=spread, scale=scale, each=each)
        return f"opposed, {law}", made
    if structure == "only p":
        return f"only p differs, {law}", arms.scattered(
            rng, kind, k, probs=probs, means=(scale, scale), each=each
        )
    if structure == "only magnitudes":
        return f"only magnitudes differ, {law}", arms.scattered(
            rng, kind, k, probs=(probs[0], probs[0]), means=means, each=each
        )
    if structure == "dense":
        return f"dense, {law}", arms.scattered(
            rng, kind, k, probs=_range(rng, 0.2, 0.9, 4.0), means=means, each=each
        )
    made = arms.scattered(rng, kind, k, probs=probs, means=means, each=each)
    if structure == "silent":
        return f"silent arms, {law}", arms.half_silent(rng, made)
    return law, made


def _many(rng: Rng) -> tuple[str, MAB]:
    words, made = _plain(rng, (50, 250))  # silent arms come on top
    return f"{made.n_arms} arms, {words}", made


def _odd(rng: Rng) -> tuple[str, MAB]:
    which = int(rng.integers(6))
    scale = float(log_uniform(rng, 0.1, 100.0))
    k = int(rng.integers(3, 13))
    probs = _range(rng, 0.02, 0.6, 10.0)
    means = _range(rng, scale, 5.0 * scale, 5.0)
    if which == 0:
        kinds = tuple(rng.permutation(list(arms.KINDS))[:8].tolist())
        wide = (scale, 10.0 * scale)
        return "eight laws", arms.mixed(rng, kinds, 8 + k, probs=probs, means=wide)
    if which == 1:
        made = arms.signed(rng, k, probs=probs, mean=scale, sd=(0.1, 1.5))
        return "losses possible, Gaussian", made
    if which == 2:
        return "gain or lose", arms.gains_and_losses(rng, k, scale=scale)
    kind = _some_kind(rng)
    law = arms.KINDS[kind].words
    if which == 3:
        tails = arms.KINDS["lognormal"].tails
        made = arms.widest_best(
            rng, "lognormal", k, probs=probs, tails=tails, lift=float(rng.uniform(1.05, 1.6))
        )
        return "the widest is best, log-normal", made
    others = arms.scattered(rng, kind, k, probs=probs, means=means, each=bool(rng.random() < 0.3))
    lift = float(log_uniform(rng, 0.5, 2.0))
    if which == 4:
        rare = float(log_uniform(rng, 5e-4, 5e-3))
        made = arms.with_an_odd_one(rng, others, kind="constant", lift=lift, prob=rare)
        return f"jackpot among arms of {law}", made
    odd = [each for each in arms.KINDS if each != kind][int(rng.integers(len(arms.KINDS) - 1))]
    prob = probs[0] * float(log_uniform(rng, 0.03, 1.0))
    tail = float(log_uniform(rng, *arms.KINDS[odd].tails))
    made = arms.with_an_odd_one(rng, others, kind=odd, lift=lift, prob=prob, tail=tail)
    return f"one odd arm ({arms.KINDS[odd].words}) among {law}", made


def _amounts() -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return the amounts in RAND's log, or None where it is not there."""
    log = rand_log()
    return None if log is None else log.reward[log.reward != 0.0]


def _resampled(rng: Rng, amounts: Any) -> tuple[str, MAB]:
    """Return arms that pay amounts from random samples of a log, each with its own p and factor."""
    k = int(rng.integers(2, 13))
    probs = log_uniform(rng, *_range(rng, 1e-3, 0.9, 10.0), k)
    laws = []
    for _ in range(k):
        sample = rng.choice(amounts, size=int(rng.integers(30, 1000)))
        factor = float(log_uniform(rng, 0.5, 2.0))
        laws.append(Empirical(tuple((factor * sample).tolist())))
    made = MAB([ZeroInflated(each, float(p)) for each, p in zip(laws, probs)])
    return "amounts of a log", made


# ---------------------------------------------------------------------------------- other kinds


def _drifting(rng: Rng, name: str, longest: int) -> World:
    pattern = ("jumps", "jumps", "waves", "walk")[int(rng.integers(4))]
    horizon = _horizon(rng, *DRIFTING_HORIZONS, longest)
    moves = ("p", "magnitudes", "both")[int(rng.integers(3))]
    # from one change or cycle per run to one in 500 rounds; a walk needs some hundred rounds to
    # cross its range with steps of a twentieth
    speed = (
        float(log_uniform(rng, 0.003, 0.05))
        if pattern == "walk"
        else float(log_uniform(rng, 1.0 / horizon, 1.0 / 500.0))
    )
    low, high = _range(rng, 0.003, 0.6, 20.0)
    scale = float(log_uniform(rng, 0.1, 100.0))
    env = DriftingMAB(
        n_arms=int(np.rint(log_uniform(rng, 2, 20))),
        pattern=pattern,  # type: ignore[arg-type]
        prob_speed=speed if moves != "magnitudes" else 0.0,
        mean_speed=speed if moves != "p" else 0.0,
        probs=(low, high),
        magnitudes=(scale, scale * float(rng.uniform(1.5, 5.0))),
        sigma=scale * float(rng.uniform(0.1, 0.5)),
    )
    words = f"{pattern} of {moves}"
    about = f"speed {speed:.2g} per round, p {low:.3g} to {high:.3g}"
    return World(name=f"{name} {words}", kind="drifting", about=about, env=env, horizon=horizon)


def _contextual(rng: Rng, name: str, longest: int) -> World:
    which = int(rng.integers(5))
    informative = int(rng.integers(1, 6))
    options: dict[str, Any] = {
        "informative": informative,
        "noise": 0,
        "effect": float(log_uniform(rng, 0.1, 1.5)),
    }
    if which == 0:
        words = "features of noise"
        options |= {"informative": 0, "noise": int(rng.integers(5, 21)), "effect": 0.0}
    elif which == 1:
        words = f"{informative} features that matter"
    elif which == 2:
        words = "only the magnitude depends on x"
        options |= {"part": "magnitude"}
    elif which == 3:
        words = "features matter for one arm"
        options |= {"one_arm": True}
    else:
        options |= {"noise": int(rng.integers(5, 18))}
        words = f"{informative} of {informative + options['noise']} features matter"
    scale = float(log_uniform(rng, 0.5, 5.0))
    env, right = with_features(
        rng,
        int(rng.integers(2, 8)),
        probs=_range(rng, 0.02, 0.5, 5.0),
        magnitudes=(2.0 * scale, 5.0 * scale),
        sigma=scale,
        link=("probit", "logit")[int(rng.integers(2))],
        **options,
    )
    horizon = _horizon(rng, *CONTEXTUAL_HORIZONS, longest)
    about = (
        f"effect {options['effect']:.2g}, {1 + options['informative'] + options['noise']} features"
    )
    return World(
        name=f"{name} {words}",
        kind="contextual",
        about=about,
        env=env,
        horizon=horizon,
        right=right,
    )
