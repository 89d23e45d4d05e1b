"""The worlds for development: fixed and named, for whoever wants to make a policy better.

What is claimed about a policy has to come from the worlds of `zib.arena.drawn`, which nobody can
tune a policy to.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.arena import arms
from zib.arena.features import with_features
from zib.arena.world import KINDS, World
from zib.core import validate as check
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError
from zib.env import MAB, PAPER_PROBS, Batched, DriftingMAB, RandomMAB
from zib.env.mab import FAMILIES, TITLES
from zib.logs.folder import KL_FILE, KZ_FILE, data_files

LONG, SHORT = 75_000, 10_000
LONGEST = 1_000_000  # of the horizons one may ask for
FIXED = 20260  # names the streams that the parameters of fixed worlds come from


def worlds(kinds: Iterable[str] | str | None = None, *, horizon: int | None = None) -> list[World]:
    """Return the worlds for development, those whose data are there.

    Parameters
    ----------
    kinds
        Kinds of worlds (`zib.arena.KINDS`); all by default.
    horizon
        Longest horizon; worlds with a longer one are cut there.

    Examples
    --------
    >>> [world.name for world in worlds("drifting")][:2]
    ['p jumps', 'p moves in slow waves']
    """
    wanted = chosen_kinds(kinds)
    makers: dict[str, Callable[[], Iterator[World]]] = {
        "plain": _plain,
        "many": _many,
        "odd": _odd,
        "drifting": _drifting,
        "batched": _batched,
        "contextual": _contextual,
        "resampled": _resampled,
    }
    return cut((world for kind in wanted for world in makers[kind]()), horizon)


def chosen_kinds(kinds: Iterable[str] | str | None) -> list[str]:
    """Return the kinds that are asked for, in their order, or raise."""
    if kinds is None:
        return list(KINDS)
    names = [kinds] if isinstance(kinds, str) else list(check.words("kinds", kinds))
    for name in names:
        check.choice("kinds", name, tuple(KINDS))
    if not names:
        raise InvalidParameterError(f"`kinds` must name some of {', '.join(KINDS)}; got none")
    return [kind for kind in KINDS if kind in names]


def cut(found: Iterable[World], horizon: int | None) -> list[World]:
    """Return the worlds with horizons of at most `horizon`."""
    if horizon is None:
        return list(found)
    most = check.integer("horizon", horizon, 2, LONGEST)
    return [replace(world, horizon=min(world.horizon, most)) for world in found]


def fixed(name: str) -> np.random.Generator:
    """Return the stream that the parameters of a named world come from."""
    return stream(FIXED, Role.INSTANCE, zlib.crc32(name.encode()))


# ---------------------------------------------------------------------------------- multi-armed


class _Recipe(NamedTuple):
    """A named world as arms made from a stream."""

    name: str
    about: str
    horizon: int
    make: Callable[[np.random.Generator], MAB]


def _made(kind: str, recipes: Sequence[_Recipe]) -> Iterator[World]:
    for name, about, horizon, make in recipes:
        yield World(name=name, kind=kind, about=about, env=make(fixed(name)), horizon=horizon)


def _of_the_paper() -> Iterator[World]:
    for tag, (low, high) in PAPER_PROBS.items():
        for family in FAMILIES:
            yield World(
                name=f"{TITLES[family]} p {low:g}–{high:g}",
                kind="plain",
                about=f"ten arms of figures 2, S1 and S2, redrawn each time, p in [{low:g}, "
                f"{high:g}], magnitudes {TITLES[family]} with means in [1, 3]",
                env=zib.env.make(f"paper-mab-{family}-{tag}-v1"),
                horizon=SHORT if tag == "tiny" else LONG,
            )


def _skewed() -> Iterator[World]:
    makers = {
        "log-normal, sd of logs 1": arms.SkewedMAB("lognormal", 1.0, 1.0),
        "log-normal, rare": arms.SkewedMAB("lognormal", 1.0, 1.0, probs=(0.0005, 0.01)),
        "log-normal, sd of logs .3–1.5": arms.SkewedMAB("lognormal", 0.3, 1.5),
        "Pareto, index 1.8": arms.SkewedMAB("pareto", 1.8, 1.8),
        "Pareto, index 1.5–4": arms.SkewedMAB("pareto", 1.5, 4.0),
    }
    for name, maker in makers.items():
        low, high = maker.probs
        about = f"ten arms, redrawn each time, means uniform on [1, 3], p on [{low:g}, {high:g}]"
        horizon = SHORT if "rare" in name else LONG
        yield World(name=name, kind="plain", about=about, env=maker, horizon=horizon)


def _plain() -> Iterator[World]:
    yield from _of_the_paper()
    yield from _skewed()
    usual: dict[str, Any] = {"probs": (0.02, 0.3), "means": (1.0, 5.0)}
    recipes = [
        _Recipe(
            f"ten arms, {kind}{words}",
            f"magnitudes {arms.KINDS[kind].words}{words}; p log-uniform on [.02, .3], means on "
            "[1, 5]",
            SHORT,
            lambda rng, kind=kind, tails=tails: arms.scattered(  # type: ignore[misc]
                rng, kind, 10, tails=tails, **usual
            ),
        )
        for kind, words, tails in (
            ("gamma", ", shape .3", (0.3, 0.3)),
            ("gamma", ", shape 4", (4.0, 4.0)),
            ("weibull", ", shape .5", (0.5, 0.5)),
            ("lomax", ", index 2.5", (2.5, 2.5)),
            ("constant", "", None),
            ("two points", ", one twenty times the other", (20.0, 20.0)),
            ("table", "", (2.0, 2.0)),
        )
    ]
    recipes += [
        _Recipe(
            "two close arms",
            "two Gaussian arms whose means differ by a tenth",
            SHORT,
            lambda rng: arms.bandit(
                rng, [arms.law("gaussian", m, 0.3) for m in (10.0, 11.0)], [0.1, 0.1]
            ),
        ),
        _Recipe(
            "dense and easy, Gaussian",
            "five arms that pay often, short horizon",
            1_000,
            lambda rng: arms.scattered(rng, "gaussian", 5, probs=(0.3, 0.9), means=(1.0, 3.0)),
        ),
        _Recipe(
            "dense and easy, exponential",
            "five arms that pay often, short horizon",
            1_000,
            lambda rng: arms.scattered(rng, "exponential", 5, probs=(0.3, 0.9), means=(1.0, 3.0)),
        ),
        _Recipe(
            "only p differs",
            "ten Gaussian arms of the same magnitude, p on [.01, .1]",
            SHORT,
            lambda rng: arms.scattered(rng, "gaussian", 10, probs=(0.01, 0.1), means=(5.0, 5.0)),
        ),
        _Recipe(
            "only p differs, rare",
            "ten arms with one price, p on [.0005, .005]",
            30_000,
            lambda rng: arms.scattered(rng, "constant", 10, probs=(5e-4, 5e-3), means=(30.0, 30.0)),
        ),
        _Recipe(
            "only magnitudes differ, exponential",
            "ten exponential arms with p = .1, means on [1, 5]",
            SHORT,
            lambda rng: arms.scattered(rng, "exponential", 10, probs=(0.1, 0.1), means=(1.0, 5.0)),
        ),
        _Recipe(
            "only magnitudes differ, log-normal",
            "ten log-normal arms with p = .05, means on [1, 5]",
            SHORT,
            lambda rng: arms.scattered(
                rng, "lognormal", 10, probs=(0.05, 0.05), means=(1.0, 5.0), tails=(1.0, 1.0)
            ),
        ),
        _Recipe(
            "opposed over three decades, prices",
            "one price per arm; p from .001 to .9, means within a fifth",
            30_000,
            lambda rng: arms.opposed(rng, "constant", 8, probs=(1e-3, 0.9), spread=0.2),
        ),
        _Recipe(
            "opposed over two decades, log-normal",
            "log-normal arms; p from .003 to .3, means within a third",
            SHORT,
            lambda rng: arms.opposed(rng, "lognormal", 10, probs=(3e-3, 0.3), spread=0.33),
        ),
        _Recipe(
            "opposed over two decades, exponential",
            "exponential arms; p from .005 to .5, means within a half",
            SHORT,
            lambda rng: arms.opposed(rng, "exponential", 6, probs=(5e-3, 0.5), spread=0.5),
        ),
        _Recipe(
            "half of the arms never pay",
            "ten arms of which five pay nothing, p on [.005, .05] for the others",
            SHORT,
            lambda rng: arms.half_silent(
                rng, arms.scattered(rng, "gamma", 5, probs=(5e-3, 0.05), means=(1.0, 5.0))
            ),
        ),
        _Recipe(
            "hardly ever",
            "five exponential arms, p on [.0001, .001]",
            100_000,
            lambda rng: arms.scattered(rng, "exponential", 5, probs=(1e-4, 1e-3), means=(1.0, 9.0)),
        ),
        _Recipe(
            "each arm its own scatter",
            "ten log-normal arms, sd of logs .3 to 1.8",
            SHORT,
            lambda rng: arms.scattered(rng, "lognormal", 10, each=True, **usual),
        ),
    ]
    yield from _made("plain", recipes)


def _many() -> Iterator[World]:
    recipes = [
        _Recipe(
            "100 arms, short",
            "Gaussian arms, p on [.02, .3], twenty rounds per arm",
            2_000,
            lambda rng: arms.scattered(rng, "gaussian", 100, probs=(0.02, 0.3), means=(1.0, 3.0)),
        ),
        _Recipe(
            "200 arms, log-normal",
            "p on [.01, .2], sd of logs 1",
            SHORT,
            lambda rng: arms.scattered(
                rng, "lognormal", 200, probs=(0.01, 0.2), means=(1.0, 5.0), tails=(1.0, 1.0)
            ),
        ),
        _Recipe(
            "500 arms, exponential",
            "p on [.02, .3], twenty rounds per arm",
            SHORT,
            lambda rng: arms.scattered(
                rng, "exponential", 500, probs=(0.02, 0.3), means=(1.0, 3.0)
            ),
        ),
        _Recipe(
            "500 arms, two rounds each",
            "prices, p on [.1, .5]",
            1_000,
            lambda rng: arms.scattered(rng, "constant", 500, probs=(0.1, 0.5), means=(1.0, 3.0)),
        ),
        _Recipe(
            "100 arms, half never pay",
            "fifty arms of gamma magnitudes and fifty that pay nothing",
            SHORT,
            lambda rng: arms.half_silent(
                rng, arms.scattered(rng, "gamma", 50, probs=(0.01, 0.1), means=(1.0, 5.0))
            ),
        ),
        _Recipe(
            "50 arms, opposed",
            "exponential arms, p from .01 to .9, means within a half",
            SHORT,
            lambda rng: arms.opposed(rng, "exponential", 50, probs=(0.01, 0.9), spread=0.5),
        ),
    ]
    yield from _made("many", recipes)


def _odd() -> Iterator[World]:
    def nine(rng: np.random.Generator) -> MAB:
        return arms.scattered(
            rng, "lognormal", 9, probs=(0.1, 0.3), means=(1.0, 3.0), tails=(0.8, 0.8)
        )

    def prices(rng: np.random.Generator) -> MAB:
        return arms.scattered(rng, "constant", 4, probs=(0.3, 0.6), means=(0.5, 1.0))

    recipes = [
        _Recipe(
            "nine log-normal arms and a rare, large one that is best",
            "the tenth pays one price in one round of a hundred, 1.5 times the best of the others",
            SHORT,
            lambda rng: arms.with_an_odd_one(rng, nine(rng), kind="constant", lift=1.5, prob=0.01),
        ),
        _Recipe(
            "nine log-normal arms and a rare, large one that is not",
            "the same, with 0.6 times the best of the others",
            SHORT,
            lambda rng: arms.with_an_odd_one(rng, nine(rng), kind="constant", lift=0.6, prob=0.01),
        ),
        _Recipe(
            "jackpot",
            "four arms pay often; one pays once in a thousand, about a thousand times as much",
            30_000,
            lambda rng: arms.with_an_odd_one(rng, prices(rng), kind="constant", lift=2, prob=1e-3),
        ),
        _Recipe(
            "jackpot that is not worth it",
            "the same, with half of what the best of the others earns",
            30_000,
            lambda rng: arms.with_an_odd_one(
                rng, prices(rng), kind="constant", lift=0.5, prob=1e-3
            ),
        ),
        _Recipe(
            "the widest is best, log-normal",
            "six arms, sd of logs from .1 to 1.8, the widest best by a fifth",
            SHORT,
            lambda rng: arms.widest_best(
                rng, "lognormal", 6, probs=(0.1, 0.3), tails=(0.1, 1.8), lift=1.2
            ),
        ),
        _Recipe(
            "the widest is best, Gaussian",
            "six arms, sd from .02 to 2 times the mean, the widest best by a fifth",
            SHORT,
            lambda rng: arms.widest_best(
                rng, "gaussian", 6, probs=(0.1, 0.3), tails=(0.02, 2.0), lift=1.2
            ),
        ),
        _Recipe(
            "arms of eight laws",
            "Gaussian, exponential, gamma, log-normal, Lomax, Weibull-like, one price, two amounts",
            SHORT,
            lambda rng: arms.mixed(rng, EIGHT, 8, probs=(0.05, 0.3), means=(1.0, 3.0)),
        ),
        _Recipe(
            "arms of eight laws, p and magnitude apart",
            "the same laws twice, p on [.01, .5] and means on [1, 30]",
            SHORT,
            lambda rng: arms.mixed(rng, EIGHT, 16, probs=(0.01, 0.5), means=(1.0, 30.0)),
        ),
        _Recipe(
            "losses possible, Gaussian",
            "means on both sides of zero, each arm its own scatter",
            SHORT,
            lambda rng: arms.signed(rng, 8, probs=(0.05, 0.5), mean=3.0, sd=(0.1, 1.0)),
        ),
        _Recipe(
            "gain or lose",
            "a gain or a loss of similar size, each arm with its own probabilities",
            SHORT,
            lambda rng: arms.gains_and_losses(rng, 6, scale=20.0),
        ),
        _Recipe(
            "nine exponential arms and a price",
            "the tenth pays one price, 1.2 times the best of the others",
            SHORT,
            lambda rng: arms.with_an_odd_one(
                rng,
                arms.scattered(rng, "exponential", 9, probs=(0.05, 0.2), means=(1.0, 3.0)),
                kind="constant",
                lift=1.2,
                prob=0.1,
            ),
        ),
    ]
    yield from _made("odd", recipes)


EIGHT = (
    "gaussian", "exponential", "gamma", "lognormal", "lomax", "weibull", "constant", "two points",
)  # fmt: skip


# ---------------------------------------------------------------------------------- other kinds


def _drifting() -> Iterator[World]:
    settings: dict[str, tuple[str, DriftingMAB]] = {
        "p jumps": (
            "all p get new values once in 3000 rounds",
            DriftingMAB(n_arms=10, pattern="jumps", prob_speed=1 / 3000),
        ),
        "p moves in slow waves": (
            "one cycle in 10 000 rounds",
            DriftingMAB(n_arms=10, pattern="waves", prob_speed=1e-4),
        ),
        "magnitudes walk": (
            "each by a hundredth of its range per round",
            DriftingMAB(n_arms=5, pattern="walk", mean_speed=0.01),
        ),
        "both jump": (
            "p and magnitudes get new values, each once in 5000 rounds",
            DriftingMAB(n_arms=5, pattern="jumps", prob_speed=1 / 5000, mean_speed=1 / 5000),
        ),
        "rare rewards, p jumps": (
            "p on [.002, .03], new values once in 5000 rounds",
            DriftingMAB(n_arms=5, pattern="jumps", prob_speed=1 / 5000, probs=(0.002, 0.03)),
        ),
    }
    for name, (about, env) in settings.items():
        yield World(name=name, kind="drifting", about=about, env=env, horizon=20_000)


def _batched() -> Iterator[World]:
    for size in (10, 100, 1_000):
        for family in ("gaussian", "exponential"):
            yield World(
                name=f"batches of {size}, {TITLES[family]}",
                kind="batched",
                about=f"ten arms of figure 2, {size} decisions before any reward is known",
                env=Batched(RandomMAB(family), size=size),
                horizon=SHORT,
            )


def _contextual() -> Iterator[World]:
    settings: dict[str, tuple[str, dict[str, Any]]] = {
        "20 features of noise, five arms": (
            "no feature has anything to do with any reward",
            {"n_arms": 5, "informative": 0, "noise": 20, "effect": 0.0},
        ),
        "20 features of noise, two arms": (
            "no feature has anything to do with any reward",
            {"n_arms": 2, "informative": 0, "noise": 20, "effect": 0.0},
        ),
        "four features that matter": (
            "for p and magnitude of every arm",
            {"n_arms": 5, "informative": 4, "noise": 0, "effect": 0.7},
        ),
        "four features that matter little": (
            "for p and magnitude of every arm",
            {"n_arms": 5, "informative": 4, "noise": 0, "effect": 0.15},
        ),
        "only the magnitude depends on x": (
            "four features move the magnitude and not p",
            {"n_arms": 4, "informative": 4, "noise": 0, "effect": 1.0, "part": "magnitude"},
        ),
        "features matter for one arm": (
            "the other four arms pay the same in every context",
            {"n_arms": 5, "informative": 4, "noise": 0, "effect": 1.0, "one_arm": True},
        ),
        "three of twenty features matter": (
            "the other seventeen are noise",
            {"n_arms": 4, "informative": 3, "noise": 17, "effect": 0.7},
        ),
    }
    for name, (about, options) in settings.items():
        env, right = with_features(fixed(name), **options)
        yield World(name=name, kind="contextual", about=about, env=env, horizon=3_000, right=right)


def rand_log() -> Any:
    """Return the log of RAND's experiment, or None: statsmodels, which brings it, is optional."""
    return zib.datasets.load_randhie() if find_spec("statsmodels") else None


def _logs() -> dict[str, Any]:
    """Return the logs of experiments that are there: see `zib.datasets`."""
    found: dict[str, Any] = {}
    log = rand_log()
    if log is not None:
        found["RAND health insurance, resampled"] = log
    loaders = {
        "Karlan–List donations, resampled": (zib.datasets.load_karlan_list, KL_FILE),
        "Karlan–Zinman loans, resampled": (zib.datasets.load_karlan_zinman, KZ_FILE),
    }
    for name, (load, file) in loaders.items():
        for path in data_files([file]):
            found[name] = load(path)
    return found


def _resampled() -> Iterator[World]:
    for name, log in _logs().items():
        yield World(
            name=name,
            kind="resampled",
            about=f"arms pay rewards drawn from the {log.n_rows} rows of the log",
            env=zib.env.BootstrapMAB(log),
            horizon=LONG,
        )
