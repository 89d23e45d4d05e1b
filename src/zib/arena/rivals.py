"""Who competes in a world, and what each is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.arena.features import Seen
from zib.arena.world import World
from zib.core.rng import Role, stream
from zib.env import Exponential, Gamma, LogNormal

DEFAULT = "ZI adaptive"  # what plays where no policy is given; with features its contextual kin
YARDSTICK = "Normal TS (told sd)"
INSTANCES = 100  # of a world that is redrawn: what is told is their average, or the worst of them
ROUNDS = 4_000  # of a world that changes, or with features, that the same is taken from
MEMORIES = (250, 1_000, 4_000)
# What says which arm is which: whoever is told this plays, but others are not compared with it.
# In a world with a jackpot the size of each arm gives away where it is.
PER_ARM = "the size of each arm and the horizon"
SMALLEST = 1e-3  # of the typical reward: a size that is told is never less


class Rival(NamedTuple):
    """A policy in a world.

    Attributes
    ----------
    label
        Its name, the same in all worlds.
    spec
        The policy.
    told
        What it knows of the world in advance, in words; empty: nothing.
    env
        The environment it plays in, where that is not the one of the world: one that shows the
        right features only.
    """

    label: str
    spec: Any
    told: str = ""
    env: Any = None


class Truth(NamedTuple):
    """What policies may be told about a world without features.

    Attributes
    ----------
    sd
        Root mean square, over arms, of the standard deviation of the reward, zeros included; inf
        where it is infinite.
    sigma
        Largest standard deviation of what is paid.
    size
        A sub-Gaussian size of what is paid, valid for all arms; inf where there is none.
    largest
        The largest reward possible; inf where there is none.
    typical
        Root mean square of the mean of what is paid.
    family
        Parameters of a policy that assumes the law of the magnitudes.
    lowest
        The least reward possible, or 0.
    moment
        Where a variance is infinite: an order 1 + ε of a moment that is finite, as ε, and the
        largest such moment.
    """

    sd: float
    sigma: float
    size: float
    largest: float
    typical: float
    family: dict[str, Any]
    lowest: float
    moment: tuple[float, float] | None


def inside(env: Any) -> Any:
    """Return the environment without what is around it, such as batches."""
    while hasattr(env, "env"):
        env = env.env
    return env


def truth(world: World) -> Truth:
    """Return what is true of a world without features that does not change.

    Examples
    --------
    >>> env = zib.env.GaussianMAB(means=[3.0, 5.0], probs=[0.2, 0.1], sigma=1.0)
    >>> found = truth(World(name="a", kind="plain", about="", env=env, horizon=100))
    >>> round(found.sd, 3), found.sigma, found.family
    (1.412, 1.0, {'family': 'gaussian', 'sigma': 1.0})
    """
    maker = inside(world.env)
    found = [maker.instance(stream(0, Role.INSTANCE, 0))]
    if found[0] is not maker:
        found += [maker.instance(stream(0, Role.INSTANCE, i)) for i in range(1, INSTANCES)]
    paid = [law.law for env in found for law in env.laws]
    variances = [law.variance for law in paid]
    typical = math.sqrt(float(np.mean([law.mean**2 for law in paid])))
    sigma = max(math.sqrt(max(variances)), SMALLEST * typical)
    return Truth(
        sd=math.sqrt(float(np.mean(np.concatenate([env.variances for env in found])))),
        sigma=sigma,
        size=max(max(law.subgaussian_size for law in paid), SMALLEST * typical),
        largest=max(_end(law, -1) for law in paid),
        typical=typical,
        family=_family(paid, sigma),
        lowest=min(_end(law, 0) for law in paid),
        moment=None if math.isfinite(sigma) else _moment(paid),
    )


def _moment(laws: list[Any]) -> tuple[float, float]:
    """Return ε half way to where moments of order 1 + ε end, and the largest such moment."""
    epsilon = 0.5 * (min(law.shape for law in laws if math.isinf(law.variance)) - 1.0)
    return epsilon, max(float(law.moment(1.0 + epsilon)) for law in laws)


def _end(law: Any, which: int) -> float:
    """Return the largest (−1) or least (0) value of a law."""
    values = getattr(law, "values", None)
    if values is not None:
        return float(values[which])
    if isinstance(law, zib.env.Constant):
        return law.value
    if which == 0 and not isinstance(law, (zib.env.Gaussian, zib.env.GaussianMixture)):
        return 0.0
    return -math.inf if which == 0 else math.inf


def _family(laws: list[Any], sigma: float) -> dict[str, Any]:
    """Return the assumption that fits: the family of all arms, or Gaussian with the largest sd."""
    if all(isinstance(law, Exponential) for law in laws):
        return {"family": "exponential"}
    if all(isinstance(law, LogNormal) for law in laws):
        return {"family": "lognormal"}
    if all(isinstance(law, Gamma) for law in laws):
        return {"family": "gamma", "shape": min(law.shape for law in laws)}
    return {"family": "gaussian", "sigma": sigma} if math.isfinite(sigma) else {}


def raw_sd(world: World) -> float:
    """Return the root mean square over arms of the standard deviation of the reward.

    Where arms change or rounds have features it is taken from some thousand rounds.
    """
    if world.contextual:
        block = world.env.instance(stream(0, Role.INSTANCE, 0)).block(
            stream(0, Role.ENVIRONMENT, 0), ROUNDS
        )
        return math.sqrt(float(np.mean(block.reward.var(axis=0))))
    if world.kind == "drifting":
        squares = []
        for i in range(10):
            run = world.env.instance(stream(0, Role.INSTANCE, i))
            step = max(world.horizon // 10, 1)
            for start in range(0, world.horizon, step):
                p, mu = run.paths(start, 1)
                squares.append(p * run.sigma**2 + p * (1.0 - p) * mu**2)
        return math.sqrt(float(np.mean(squares)))
    return truth(world).sd


# ---------------------------------------------------------------------------------------- who plays


def rivals(world: World) -> list[Rival]:
    """Return who competes in a world besides the policies that are entered; the default first.

    Examples
    --------
    >>> from zib.arena import worlds
    >>> [rival.label for rival in rivals(worlds("odd")[0]) if rival.told][:2]
    ['Normal TS (told sd)', 'Normal TS (half of it)']
    """
    if world.contextual:
        return _contextual(world)
    if world.kind == "drifting":
        return _drifting(world)
    return _multi_armed(world)


def _told_nothing(*, positive: bool) -> list[Rival]:
    """Return policies that are told nothing; some assume a family of rewards that are positive."""
    m = zib.mab
    found = [
        Rival(DEFAULT, m.ZIAdaptive()),
        Rival("ZI posterior", m.ZIPosterior()),
        Rival("ZI posterior learned", m.ZIPosterior(prior="learned")),
        Rival("ZI-IMED", m.ZIIMED()),
        Rival("ZI-KL-UCB", m.ZIKLUCB()),
        Rival("ε-greedy", m.EpsilonGreedy(epsilon=0.05)),
    ]
    if positive:
        found += [
            Rival("ZI posterior, lognormal", m.ZIPosterior(family="lognormal")),
            Rival("ZI posterior, exponential", m.ZIPosterior(family="exponential")),
            Rival("ZI-IMED, exponential", m.ZIIMED(family="exponential")),
        ]
    return found


def _told_sd(sd: float) -> list[Rival]:
    if not (math.isfinite(sd) and sd > 0.0):
        return []
    return [
        Rival(YARDSTICK, zib.mab.NormalTS(sigma=sd), "the sd of rewards"),
        Rival("Normal TS (half of it)", zib.mab.NormalTS(sigma=0.5 * sd), "the sd of rewards"),
    ]


def _multi_armed(world: World) -> list[Rival]:
    m, known, horizon = zib.mab, truth(world), world.horizon
    found = [*_told_nothing(positive=known.lowest >= 0.0), *_told_sd(known.sd)]
    if known.family:
        words = "the family" + (" and its scale" if "sigma" in known.family else "")
        found += [
            Rival("ZI posterior (told family)", m.ZIPosterior(**known.family), words),
            Rival("ZI-IMED (told family)", m.ZIIMED(**known.family), words),
        ]
    if known.moment is not None:
        heavy = m.ZIHeavyUCB(epsilon=known.moment[0], moment=known.moment[1])
        found.append(Rival("ZI-UCB heavy (told)", heavy, "a moment"))
    if math.isfinite(known.sigma):
        both = "a size and the horizon"
        found.append(Rival("ZI-TS (told)", m.ZITS(horizon=horizon, sigma=known.sigma), both))
    if math.isfinite(known.sd):
        found.append(Rival("MOTS (told)", m.MOTS(horizon=horizon, sigma=known.sd), "sd, horizon"))
    if math.isfinite(known.size):
        exact = m.UCB(horizon=horizon, sigma=known.size, size="true")
        found.append(Rival("UCB true size (told)", exact, PER_ARM))
    if known.lowest >= 0.0 and math.isfinite(known.largest):
        bounded = m.UCBV(scale=known.largest)
        found.append(Rival("UCB-V (told)", bounded, "the largest reward"))
    return found


def _drifting(world: World) -> list[Rival]:
    m = zib.mab
    sigma = float(world.env.sigma)
    plain = m.ZIPosterior(sigma=sigma)
    return [
        Rival(DEFAULT, m.ZIAdaptive()),
        Rival("ZI adaptive, watching", m.Watching()),
        Rival("ZI posterior", m.ZIPosterior()),
        Rival("ZI-IMED", m.ZIIMED()),
        Rival("ε-greedy", m.EpsilonGreedy(epsilon=0.05)),
        *_told_sd(raw_sd(world)),
        *(
            Rival(f"ZI posterior, half-life {n}", m.Discounted(plain, n), "scatter, memory")
            for n in MEMORIES
        ),
        Rival("ZI posterior, last 1500", m.Windowed(plain, 1_500), "scatter, memory"),
    ]


def _contextual(world: World) -> list[Rival]:
    c, k = zib.contextual, world.n_arms
    found = [
        Rival(DEFAULT, c.Adaptive(n_arms=k)),
        Rival("ZI adaptive, without features", zib.mab.ZIAdaptive()),
        Rival("Laplace-TS", c.Disjoint(spec=c.LaplaceTS(), n_arms=k)),
        Rival("Laplace-TS learned", c.Disjoint(spec=c.LaplaceTS(prior="learned"), n_arms=k)),
        Rival("Joint-UCB", c.Disjoint(spec=c.JointUCB(), n_arms=k)),
        *_told_sd(raw_sd(world))[:1],
    ]
    if world.right is not None and world.right != _everything(world):
        seen = Seen(env=world.env, magnitude=world.right[0], occurrence=world.right[1])
        told = c.Disjoint(spec=c.LaplaceTS(), n_arms=k)
        found.append(Rival("Laplace-TS (right features)", told, "which features matter", seen))
    return found


def _everything(world: World) -> tuple[tuple[int, ...], tuple[int, ...]]:
    d, q = world.env.n_features
    return tuple(range(d)), tuple(range(q))


Entry = Any | Callable[[World], Any]


def entered(label: str, entry: Entry, world: World) -> Rival | None:
    """Return a policy that is entered as it plays in a world, or None where it cannot.

    A function of the world returns the policy for it, or None; what it is told, where it looks at
    the environment, it says in its attribute `told`. A policy for rounds with features
    plays where there are any; where all arms have the same features, each gets a model of its own.
    """
    from zib.contextual.policy import POLICIES
    from zib.core.kernel import REGISTRY, is_interpreted

    spec = entry
    if type(spec) not in REGISTRY and type(spec) not in POLICIES and callable(entry):
        spec = entry(world)
    if spec is None:
        return None
    if type(spec) in POLICIES:
        if not world.contextual:
            return None
        c = zib.contextual
        by_arm = (c.Adaptive, c.Disjoint, c.ByCategory)
        if not isinstance(spec, by_arm) and not is_interpreted(spec):
            spec = c.Disjoint(spec=spec, n_arms=world.n_arms)
    return Rival(label, spec, str(getattr(entry, "told", "")))


__all__ = [
    "DEFAULT",
    "YARDSTICK",
    "Entry",
    "Rival",
    "Truth",
    "entered",
    "raw_sd",
    "rivals",
    "truth",
]
