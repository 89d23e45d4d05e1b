"""The contextual study of figures 3 and S3 and of the links: one design, other environments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

import zib
from zib import theory
from zib.contextual import StandardLink, derivative, kappa, value
from zib.core.rng import Role, stream
from zib.env import RandomContextual
from zib.env.contextual import NOISES, LinkName, Noise
from zib.experiments.draw import TITLES, Look, detailed_table, side_by_side
from zib.experiments.harness import Panel, Played, Scaled, Simulated, amount
from zib.experiments.judge import at_most, below, compare, grows, lower
from zib.experiments.record import Setting, Source, Table, Verdict
from zib.report.numbers import number
from zib.sim import Results
from zib.stats import intervals

HORIZON, REPLICATIONS = 20_000, 25  # the paper's
RIDGE = 1.0
PRINTED = ("ZI-UCB printed", "ZI-TS printed")
ON_MEANS = ("ZI-UCB", "ZI-TS")
VERSIONS = {"as printed": PRINTED, "on the scale of means": ON_MEANS}
NAIVE = ("naive UCB", "naive TS")
INTEGRATED = ("integrated UCB", "integrated TS")
BETTER = ("Joint-UCB", "Laplace-TS")
GROUPS = {
    "made for zero inflation": ("ZI-UCB printed", "ZI-UCB", "ZI-TS printed", "ZI-TS"),
    "the paper's baselines": (*NAIVE, *INTEGRATED),
    "one better (ours)": BETTER,
}
CAPTION = (
    "Mean cumulative regret with 95 % bands, linear axes as in the paper. Green and blue: the "
    "paper's policies, dashed as printed, solid on the scale of means. Orange and pink: its "
    "baselines. Purple: one estimate of the uncertainty of p·mu for both parts."
)
LAWS: dict[Noise, str] = {
    "gaussian": "N(0, 1)",
    "mixture": "the mixture ½N(−√¾, ¼) + ½N(√¾, ¼)",
    "exponential": "Exp(1) − 1",
}
OF_UCB, OF_TS = 0.4, 0.8  # our targets: at most these multiples of the regret of ZI-UCB and ZI-TS
SHOWN_ALWAYS = "UCB"  # the paper shows no Thompson sampling where the noise is exponential
ROUNDS = 400  # enough for two digits of what is averaged over rounds and actions


class ContextualStudy(Simulated):
    """All policies with three noises, at one or more sparsities.

    Attributes
    ----------
    sparsities
        Numbers of non-zero entries of θ and of each arm's centre.
    noises
        Laws of the noise.
    link, link_source
        The link of the occurrence in words, and who chose it.
    replications
        How often to play.
    """

    sparsities: ClassVar[tuple[int, ...]]
    noises: ClassVar[tuple[Noise, ...]] = NOISES
    link: ClassVar[str] = "probit"
    link_source: ClassVar[Source] = "ours"
    horizon: ClassVar[int] = HORIZON
    replications: Scaled[int]
    look = Look(GROUPS, CAPTION)
    compiles_contextual = True

    def settings(self) -> Iterable[Setting]:
        """Return the settings of a contextual figure."""
        sparsity = ", ".join(map(str, self.sparsities))
        return (
            Setting("actions", "K = 100 in each round, d = 10 features for each part", "paper"),
            Setting("features", "x ~ N(ν_k, I/(2K)) for arm k; z = x, w = sin(x)", "paper"),
            Setting("β", "entries U[0, 1], scaled to norm 1; redrawn per replication", "paper"),
            Setting(
                "θ and ν_k",
                f"s non-zero entries U[0, 1], s = {sparsity}; redrawn per replication",
                "paper",
            ),
            Setting("their scale", "norm 1 each; the s places are drawn for each vector", "ours"),
            Setting("link of the occurrence", self.link, self.link_source),
            Setting("noise of non-zero rewards", "standard deviation 1", "paper"),
            Setting("its law", "; ".join(LAWS[noise] for noise in self.noises), "ours"),
            amount("horizon", "T", self.horizon, HORIZON),
            amount("replications", "N", self.replications, REPLICATIONS),
            *SETTINGS,
            *((UNFAIR,) if "exponential" in self.noises else ()),
            *OURS,
        )

    def panels(self) -> list[Panel]:
        """Return a panel per noise and sparsity."""
        found = []
        for sparsity in self.sparsities:
            for noise in self.noises:
                name = f"{TITLES[noise]} s = {sparsity}"
                title = f"{TITLES[noise]} noise, s = {sparsity}"
                found.append(self.panel(environment_id(noise, sparsity), name, title))
        return found

    def panel(self, environment: str, name: str, title: str) -> Panel:
        """Return the panel of one environment."""
        maker: Any = zib.env.make(environment)
        return Panel(
            name=name,
            title=title,
            key={"noise": maker.noise, "sparsity": maker.sparsity, "link": maker.link},
            env=maker,
            policies=self.policies(maker),
            horizon=self.horizon,
            replications=self.replications,
        )

    def policies(self, maker: RandomContextual) -> dict[str, Any]:
        """Return who plays."""
        return policies(maker, self.horizon)

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return final regrets: a detailed table per panel, or one per noise over sparsities."""
        if len({panel.env.sparsity for panel in found}) == 1:
            yield from (detailed_table(panel, PRINTED[0]) for panel in found)
            return
        for noise in NOISES:
            mine = [panel for panel in found if panel.env.noise == noise]
            if mine:
                columns = [f"s = {panel.env.sparsity}" for panel in mine]
                yield side_by_side(f"{TITLES[noise]} noise", mine, columns)

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge what the paper says about these panels, then what we wanted to reach."""
        named = by_name(found)
        light = {n: r for n, r in named.items() if not n.startswith(TITLES["exponential"])}
        here = self.conditions()
        return (
            *(
                grows(
                    f"The zero-inflated UCB and TS are sublinear for every noise: {version}",
                    claimed(named, light, labels),
                    exponents=True,
                )
                for version, labels in VERSIONS.items()
            ),
            *(
                lowest_of_all(label, named, light, here)
                for labels in VERSIONS.values()
                for label in labels
            ),
            *(
                grows(claim, claimed(named, light, labels), word, exponents=True)
                for claim, labels, word in (
                    ("The misspecified (naive) methods are linear", NAIVE, "linear"),
                    ("Integrated UCB is linear", INTEGRATED[:1], "linear"),
                    ("Integrated TS is sublinear", INTEGRATED[1:], "sublinear"),
                )
            ),
            *(
                below(
                    f"ZI-TS is below integrated TS: {version}, {here}",
                    light,
                    labels[1],
                    INTEGRATED[1],
                )
                for version, labels in VERSIONS.items()
            ),
            *targets(named, here),
        )

    def conditions(self) -> str:
        """Return for which tasks and horizon a verdict holds."""
        sparsity = ", ".join(map(str, self.sparsities))
        return f"for K = 100, d = 10, s = {sparsity}, σ = 1, T = {self.horizon}"

    def notes(self, found: list[Played]) -> Iterable[str]:
        """Say how hard the task is, and what theory says of it."""
        few, horizon = self.replications, self.horizon
        makers = [panel.env for panel in found[:: len(NOISES)]]  # noise changes neither p nor mu
        return (
            *few_replications(few),
            why_naive_does_well(makers, self.context.seed, few, horizon),
            what_the_theorem_says(makers[0], self.context.seed, few, horizon),
        )


# ------------------------------------------------------------------------------- settings, policies

SETTINGS = (
    Setting("confidence level", "δ = 1/T; radii ρ_X, ρ_Y of Assumption B.3", "paper"),
    Setting("spread of Thompson sampling", "ϱ² = 24σ²d·log(T)²/K²", "paper"),
    Setting(
        "what policies know",
        "the link; those of the paper also σ = 1 and that β and θ have norm at most 1",
        "paper",
    ),
    Setting(
        "ridge and random rounds",
        f"λ = {RIDGE:g} for every matrix and estimate; τ = 50 random rounds for the paper's "
        "policies",
        "ours",
    ),
    Setting(
        "ZI-UCB printed, ZI-TS printed",
        "Algorithms B.3 and B.4: the product of the bounds, or draws, of the linear predictors",
        "paper",
    ),
    Setting(
        "ZI-UCB, ZI-TS",
        "the template of Algorithm 2: bounds or draws of h and g themselves, h within [0, 1], "
        "paired with its lower bound where g is negative",
        "fix",
    ),
    Setting(
        "naive and integrated UCB",
        "widths √ρ_X and √max(ρ_X, ρ_Y): the root of the radius, as printed",
        "paper",
    ),
    Setting(
        "norms and fit of the baselines",
        "norms in the inverses of U and W (printed without); integrated: least squares "
        "(printed: the norm of the sum of the residuals)",
        "fix",
    ),
)
UNFAIR = Setting(
    "Thompson sampling with exponential noise",
    "the paper shows none; shown here, but no claim of the paper is judged on it",
    "ours",
)
OURS = (
    Setting(
        "Joint-UCB, Laplace-TS",
        "one standard error of p·mu by the delta method, times √log(1 + t); draws from the "
        "Gaussian approximation of the posterior. σ is estimated, nothing is tuned",
        "ours",
    ),
    Setting(
        "pairing",
        "all policies of a replication meet the same features, and an action would pay the "
        "same to each",
        "ours",
    ),
)


def environment_id(noise: Noise, sparsity: int, link: LinkName = "probit") -> str:
    """Return the id of the paper's environment.

    Examples
    --------
    >>> environment_id("mixture", 3)
    'paper-contextual-mixture-s3-probit-v1'
    """
    return f"paper-contextual-{noise}-s{sparsity}-{link}-v1"


def policies(maker: RandomContextual, horizon: int) -> dict[str, Any]:
    """Return the policies of the study, by the label they carry in all figures.

    All are told the link. Those of the paper are told the standard deviation of the noise as well;
    Joint-UCB and Laplace-TS estimate it.
    """
    known: dict[str, Any] = {"horizon": horizon, "sigma": maker.sigma, "ridge": RIDGE}
    model: dict[str, Any] = {"link": maker.link, "ridge": RIDGE}
    both = known | model
    return {
        "ZI-UCB printed": zib.contextual.ZIUCB(index="printed", **both),
        "ZI-UCB": zib.contextual.ZIUCB(**both),
        "ZI-TS printed": zib.contextual.ZITS(index="printed", **both),
        "ZI-TS": zib.contextual.ZITS(**both),
        "naive UCB": zib.contextual.Naive(kind="ucb", **known),
        "naive TS": zib.contextual.Naive(kind="ts", **known),
        "integrated UCB": zib.contextual.Integrated(kind="ucb", **both),
        "integrated TS": zib.contextual.Integrated(kind="ts", **both),
        "Joint-UCB": zib.contextual.JointUCB(**model),
        "Laplace-TS": zib.contextual.LaplaceTS(**model),
    }


def compile_policies() -> None:
    """Play two rounds with every policy of figure 3, so that the compiled code is in the cache."""
    maker: Any = zib.env.make(environment_id("gaussian", 7))
    for spec in policies(maker, HORIZON).values():
        zib.simulate([spec], maker, horizon=2, replications=1, backend="serial", progress=False)


# ---------------------------------------------------------------------------------- tables, claims


def by_name(found: Sequence[Played]) -> dict[str, Results]:
    """Return results by the shortest name that tells the panels apart."""
    if len({panel.env.sparsity for panel in found}) == 1:
        return {TITLES[panel.env.noise]: panel.result for panel in found}
    return {panel.name: panel.result for panel in found}


def claimed(
    named: Mapping[str, Results], light: Mapping[str, Results], labels: Sequence[str]
) -> Iterator[tuple[str, Results, str]]:
    """Yield the panels and policies the paper shows."""
    for label in labels:
        for name, result in (named if SHOWN_ALWAYS in label else light).items():
            yield name, result, label


def lowest_of_all(
    label: str, named: Mapping[str, Results], light: Mapping[str, Results], here: str
) -> Verdict:
    """Judge whether one of the zero-inflated policies is below each of the paper's baselines."""
    return lower(
        f"{label} has lower regret than each of the paper's other methods, {here}",
        [
            compare(name, result, label, other)
            for name, result, _ in claimed(named, light, [label])
            for other in (*NAIVE, *INTEGRATED)
            if label in result.labels and other in result.labels
            if name in light or SHOWN_ALWAYS in other
        ],
        lambda c: (c.second, c.panel),
    )


def targets(named: Mapping[str, Results], here: str) -> Iterator[Verdict]:
    """Judge, for each of our own policies, whether it beats the paper's by the factors we want."""
    for policy in BETTER:
        for version, labels in VERSIONS.items():
            limits = dict(zip(labels, (OF_UCB, OF_TS)))
            found = [
                compare(name, result, policy, label, factor=limits[label])
                for name, result in named.items()
                for label in labels
                if policy in result.labels and label in result.labels
            ]
            yield at_most(
                f"Our target: {policy} has at most {OF_UCB:g} of the regret of ZI-UCB and "
                f"{OF_TS:g} of that of ZI-TS: {version}, {here}",
                found,
            )


# ------------------------------------------------------------------------------------------- notes


class Task(NamedTuple):
    """One instance: how linear its mean reward is, and what bad play costs per round."""

    explained: float
    linear_rule: float
    at_random: float
    worst: float


def task(maker: RandomContextual, seed: int, replication: int) -> Task:
    """Measure one instance of an environment on rounds of its own stream.

    `explained` is the share of the variance of the mean reward over all actions that the best
    linear function of the features explains; `linear_rule` is the mean regret per round of playing
    the action this function likes best.
    """
    env = maker.instance(stream(seed, Role.INSTANCE, replication))
    block = env.block(stream(seed, Role.ENVIRONMENT, replication), ROUNDS)
    mean = block.mean
    features = np.moveaxis(block.z, 1, 2).reshape(mean.size, -1)
    coef = np.linalg.lstsq(features, mean.ravel(), rcond=None)[0]
    fitted = (features @ coef).reshape(mean.shape)
    best = mean.max(axis=1)
    played = np.take_along_axis(mean, fitted.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Task(
        float(1.0 - np.mean((mean - fitted) ** 2) / mean.var()),
        float((best - played).mean()),
        float((best - mean.mean(axis=1)).mean()),
        float((best - mean.min(axis=1)).mean()),
    )


def why_naive_does_well(
    makers: Sequence[RandomContextual], seed: int, replications: int, horizon: int
) -> str:
    """Return what the misspecified model loses here, and why its printed width helps it."""
    tasks = [task(maker, seed, r) for maker in makers for r in range(replications)]
    shares = [100 * t.explained for t in tasks]
    cost = float(np.mean([t.linear_rule for t in tasks])) * horizon
    maker = makers[0]
    d, q = maker.n_features
    rho_x = printed_radius(horizon, d, maker.sigma, 1.0)
    rho_y = printed_radius(horizon, q, 1.0, kappa(StandardLink(name=maker.link), 1.0))
    return (
        "Why the misspecified model does well here: no coefficient and no centre is negative, and "
        "over such actions p·mu is nearly linear. The best linear function of x explains "
        f"{min(shares):.0f} to {max(shares):.0f} % of the variance of the mean reward over "
        f"actions and rounds. Playing by it alone would cost {number(cost)} on average in "
        f"{horizon} rounds, and less if it were fitted to the actions it plays, as the naive "
        "methods do; so the part of their regret that is bound to be linear is small here. "
        "Besides, the baselines are printed with the root of the radius: at the end naive UCB adds "
        f"{math.sqrt(rho_x):.1f} times the width of x to its estimate, while ZI-UCB adds "
        f"{rho_x:.1f} widths for the magnitude and {rho_y:.0f} for the probability and is still "
        "exploring."
    )


def printed_radius(horizon: int, dim: int, sigma: float, slope: float) -> float:
    """Return the paper's radius for one part of the model at the end of the run."""
    return float(
        theory.contextual_radius(
            horizon,
            dim,
            1.0 / horizon,
            ridge=RIDGE,
            sigma=sigma,
            kappa=slope,
            version="printed",
        )
    )


def what_the_theorem_says(
    maker: RandomContextual, seed: int, replications: int, horizon: int
) -> str:
    """Return the regret bound of the theorem next to the largest regret that is possible."""
    d, q = maker.n_features
    link = StandardLink(name=maker.link)
    bounds = [
        float(
            theory.contextual_regret_bound(
                horizon,
                d,
                q,
                1.0 / horizon,
                sigma=maker.sigma,
                slope_occurrence=max(derivative(link, x) for x in np.linspace(-1.0, 1.0, 201)),
                kappa_occurrence=kappa(link, 1.0),
                prob_min=value(link, -1.0),
                ridge_magnitude=RIDGE,
                ridge_occurrence=RIDGE,
                version=version,
            )
        )
        for version in ("corrected", "printed")
    ]
    tasks = [task(maker, seed, r) for r in range(replications)]
    worst = float(np.mean([t.worst for t in tasks])) * horizon
    random = float(np.mean([t.at_random for t in tasks])) * horizon
    return (
        f"Theorem 4.3 says nothing at this horizon: its bound is {number(bounds[0])} with the "
        f"corrected constants and {number(bounds[1])} with the printed ones, "
        f"{bounds[0] / worst:.0f} and {bounds[1] / worst:.0f} times the regret of playing the "
        f"worst action in every round ({number(worst)}). Playing at random would cost "
        f"{number(random)}. The bound is therefore not drawn."
    )


def few_replications(replications: int) -> Iterator[str]:
    """Warn about intervals from few replications."""
    if replications >= REPLICATIONS:
        return
    few, many = (intervals.t_quantile(n - 1) for n in (replications, REPLICATIONS))
    yield (
        f"Quick scale: with {replications} replications a 95 % interval is {few:.1f} standard "
        f"errors wide on either side ({many:.1f} with the paper's {REPLICATIONS}), and a standard "
        f"error is {math.sqrt(REPLICATIONS / replications):.1f} times as large. Much stays "
        "undecided that --scale paper decides."
    )
