"""The panels of the multi-armed study: who plays, with which parameters, and what came out.

Figures 2, S1 and S2 are the same study with other probabilities and horizons.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib.core.rng import Role, stream
from zib.env.generators import FAMILIES, Family, RandomMAB
from zib.experiments.record import Context
from zib.sim import Results

TITLES: dict[Family, str] = {
    "gaussian": "Gaussian",
    "mixture": "Gaussian mixture",
    "exponential": "Exponential",
}
ZERO_INFLATED = ("ZI-UCB printed", "ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable")
BEYOND = ("ZI-KL-UCB", "ZI-IMED", "ZI posterior", "ZI adaptive")
STRONG = "UCB true size (strong)"
BASELINES = ("UCB component size", "UCB variance size", "UCB estimated size", "MOTS")
OTHERS = ("UCB1", "kl-UCB", "Normal TS", "ε-greedy")
GROUPS = {
    "made for zero inflation": ZERO_INFLATED,
    "beyond the paper": BEYOND,
    "the paper's baselines": (STRONG, *BASELINES),
    "what else a user might pick": OTHERS,
    "yardstick": ("asymptotic bound",),
}
MUCH_HIGHER = 2.0  # "significantly higher": at least this many times the regret of ZI-UCB or ZI-TS


class Panel(NamedTuple):
    """One panel of a figure: a family of rewards at one range of probabilities."""

    family: Family
    probs: tuple[float, float]
    result: Results
    lower_bound: NDArray[np.float64] | None

    @property
    def name(self) -> str:
        """Family and probabilities in words."""
        return f"{TITLES[self.family]} p {self.probs[0]:g}–{self.probs[1]:g}"

    @property
    def title(self) -> str:
        """What stands over the panel."""
        return f"{TITLES[self.family]}, p ∈ [{self.probs[0]:g}, {self.probs[1]:g}]"

    @property
    def key(self) -> dict[str, object]:
        """What tells this panel from others, as columns of a table."""
        return {"family": self.family, "p_low": self.probs[0], "p_high": self.probs[1]}

    @property
    def references(self) -> dict[str, NDArray[np.float64]]:
        """Curves that are no policy."""
        return {} if self.lower_bound is None else {"asymptotic bound": self.lower_bound}


def policies(maker: RandomMAB, horizon: int) -> dict[str, Any]:
    """Return the policies of the study for one family, by the label they carry in all figures.

    Every policy that asks for a size is given the smallest one that is valid for each arm that
    can be drawn. UCB1 and kl-UCB want bounded rewards; they are given a scale that covers nearly
    all of them, as a user would do.
    """
    if maker.family == "exponential":
        return _exponential_policies(maker, horizon)
    sigma = maker.component_size("subgaussian")
    scale = maker.magnitudes[1] + 2 * sigma
    return {
        "ZI-UCB printed": zib.mab.ZIUCB(
            horizon=horizon,
            sigma=sigma,
            radius="subweibull",
            occurrence="hoeffding",
            unseen=1.0,
        ),
        "ZI-UCB": zib.mab.ZIUCB(horizon=horizon, sigma=sigma),
        "ZI-TS": zib.mab.ZITS(horizon=horizon, sigma=sigma),
        **_beyond(sigma=sigma),
        **{
            f"UCB {size} size" + (" (strong)" if size == "true" else ""): zib.mab.UCB(
                horizon=horizon, sigma=sigma, size=size
            )
            for size in ("component", "variance", "estimated", "true")
        },
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=sigma),
        **_others(scale, sigma),
    }


def _exponential_policies(maker: RandomMAB, horizon: int) -> dict[str, Any]:
    largest = maker.magnitudes[1]
    lam = maker.component_size("subexponential")
    tail = zib.SubExponential(lam)
    printed = zib.SubWeibull(
        theta=1.0, size=zib.theory.subweibull_size("exponential", 1.0, scale=largest)
    )
    return {
        "ZI-UCB printed": zib.mab.ZIUCB(
            horizon=horizon,
            tail=printed,
            radius="subweibull",
            occurrence="hoeffding",
            unseen=1.0,
        ),
        "ZI-UCB": zib.mab.ZIUCB(horizon=horizon, tail=tail),
        "ZI-TS exponential": zib.mab.ZIExponentialTS(),
        "ZI-TS stable": zib.mab.ZIStableTS(sigma=largest / math.sqrt(2.0), stability=1.8),
        **_beyond(family="exponential"),
        **{
            f"UCB {size} size" + (" (strong)" if size == "true" else ""): zib.mab.UCB(
                horizon=horizon, tail=tail, size=size
            )
            for size in ("component", "variance", "estimated", "true")
        },
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=lam),
        **_others(3 * largest, largest),
    }


def _beyond(**family: Any) -> dict[str, Any]:
    """Return the policies beyond the paper; all but the last are told the family."""
    specs = (
        zib.mab.ZIKLUCB(**family),
        zib.mab.ZIIMED(**family),
        zib.mab.ZIPosterior(**family),
        zib.mab.ZIAdaptive(),
    )
    return dict(zip(BEYOND, specs))


def _others(scale: float, sigma: float) -> dict[str, Any]:
    return {
        "UCB1": zib.mab.UCB1(scale=scale),
        "kl-UCB": zib.mab.KLUCB(scale=scale),
        "Normal TS": zib.mab.NormalTS(sigma=sigma),
        "ε-greedy": zib.mab.EpsilonGreedy(epsilon=0.1),
    }


def asymptotic_bound(
    maker: RandomMAB, seed: int, replications: int, rounds: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Return the Lai–Robbins yardstick, averaged over the instances that were played.

    In the long run arm k has to be pulled log t/d times, d = d_inf(k). For rounds too few to tell
    the arm from the best one that number is absurd (more than t), so log(1 + t·d)/d is used, which
    is the same in the limit, and at most the arm's share t/K of the rounds. A yardstick, not a
    bound, at finite t. None for the mixture, whose d_inf has no closed form.
    """
    if maker.family == "mixture":
        return None
    t = np.asarray(rounds, dtype=np.float64)
    curves = []
    for replication in range(replications):
        env = maker.instance(stream(seed, Role.INSTANCE, replication))
        worse = env.gaps > 0
        cost = zib.theory.divergence_to(
            env.magnitudes[worse],
            env.probs[worse],
            env.best_mean,
            maker.sigma if maker.family == "gaussian" else None,
            family=maker.family,
        )
        d = np.asarray(cost)
        pulls = np.minimum(np.log1p(t[:, None] * d) / d, t[:, None] / env.n_arms)
        curves.append(pulls @ env.gaps[worse])
    return np.asarray(np.mean(curves, axis=0))


def rounds_to_record(horizon: int) -> list[int]:
    """Return checkpoints that serve linear and logarithmic axes, half the horizon among them."""
    even = np.linspace(horizon / 100, horizon, 100)
    early = np.geomspace(max(horizon / 1000, 1), horizon / 100, 20)
    return sorted({*(math.ceil(t) for t in (*early, *even)), horizon // 2, horizon})


def play(
    context: Context,
    ids: Sequence[str],
    policies_of: Callable[[Any, int], dict[str, Any]],
    horizon: int,
    replications: int,
) -> Iterator[tuple[Any, Results]]:
    """Play `policies_of` each environment of `ids` in it; yield what is finished, panel by panel.

    Stops early, without the unfinished panel, when the user interrupts.
    """
    for i, name in enumerate(ids):
        maker = zib.env.make(name)
        context.tell(name, i / len(ids))

        def report(done: int, total: int, name: str = name, i: int = i) -> None:
            context.tell(name, (i + done / total) / len(ids))

        with warnings.catch_warnings():
            # an interrupted simulation says so by a warning; here its result says so
            warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
            result = zib.simulate(
                policies_of(maker, horizon),
                maker,
                horizon=horizon,
                replications=replications,
                seed=context.seed,
                checkpoints=rounds_to_record(horizon),
                workers=context.workers,
                progress=report,
                store=context.store,
            )
        if not result.complete:
            return
        yield maker, result


def run_panels(
    context: Context,
    ids: Sequence[str],
    horizon: int,
    replications: int,
) -> Iterator[Panel]:
    """Play all policies in each environment of `ids`; yield panels as they are finished."""
    for maker, result in play(context, ids, policies, horizon, replications):
        bound = asymptotic_bound(maker, context.seed, replications, result.checkpoints)
        yield Panel(maker.family, maker.probs, result, bound)


def panel_ids(tags: Sequence[str]) -> list[str]:
    """Return the ids of three panels per range of probabilities."""
    return [f"paper-mab-{family}-{tag}-v1" for tag in tags for family in FAMILIES]
