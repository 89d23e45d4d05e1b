"""The multi-armed study of figures 2, S1 and S2: one design, other probabilities and horizons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import zib
from zib.core.rng import Role, stream
from zib.env.mab import FAMILIES, RandomMAB
from zib.experiments.draw import TITLES, Look, detailed_table, side_by_side
from zib.experiments.harness import Panel, Played, Scaled, Simulated, amount, horizons
from zib.experiments.judge import (
    Comparison,
    below,
    compare,
    grows,
    growth,
    lower,
    lowest,
    undecided,
    where,
)
from zib.experiments.record import Setting, Table, Verdict
from zib.report.numbers import number
from zib.sim import Results

PAPER_REPLICATIONS = 50
ZERO_INFLATED = ("ZI-UCB printed", "ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable")
BEYOND = ("ZI-KL-UCB", "ZI-IMED", "ZI posterior", "ZI adaptive")
STRONG = "UCB true size (strong)"
BASELINES = ("UCB component size", "UCB variance size", "UCB estimated size", "MOTS")
OTHERS = ("UCB1", "kl-UCB", "Normal TS", "ε-greedy")
BOUND = "asymptotic bound"
LOOK = Look(
    groups={
        "made for zero inflation": ZERO_INFLATED,
        "beyond the paper": BEYOND,
        "the paper's baselines": (STRONG, *BASELINES),
        "what else a user might pick": OTHERS,
        "yardstick": (BOUND,),
    },
    caption=(
        "Mean cumulative regret with 95 % bands, linear axes as in the paper. Thin grey and "
        "sand-coloured curves are policies a user might pick instead. Dotted black: the "
        "Lai–Robbins lower bound in a form that is sensible at finite t, "
        "Σ Δ·min(log(1 + t·d)/d, t/K); it binds in the limit only (no closed form for the "
        "mixture)."
    ),
)
MUCH_HIGHER = 2.0  # "significantly higher": at least this many times the regret of ZI-UCB or ZI-TS


class MultiArmedStudy(Simulated):
    """All policies in three families of rewards, at one or more ranges of probabilities.

    Attributes
    ----------
    tags
        Ranges of the probabilities, by their names in `zib.env.PAPER_PROBS`.
    horizon, replications
        How much to play.
    """

    tags: ClassVar[tuple[str, ...]]
    horizon: ClassVar[int]
    replications: Scaled[int]
    look = LOOK

    def settings(self) -> Iterable[Setting]:
        """Return the settings of a multi-armed figure."""
        ranges = [zib.env.PAPER_PROBS[tag] for tag in self.tags]
        probs = ", ".join(f"[{low:g}, {high:g}]" for low, high in ranges)
        return (
            Setting("arms", "K = 10", "paper"),
            Setting("range of the probability of paying", probs, "paper"),
            Setting(
                "probability of an arm",
                "each p_k drawn independently from the range, redrawn per replication (the text "
                "says that p = max p_k is)",
                "ours",
            ),
            Setting("horizon", f"T = {self.horizon}", "paper"),
            amount("replications", "N", self.replications, PAPER_REPLICATIONS),
            *SETTINGS,
        )

    def panels(self) -> list[Panel]:
        """Return a panel per family and range."""
        return [self._panel(zib.env.make(name)) for name in panel_ids(self.tags)]

    def _panel(self, maker: Any) -> Panel:
        low, high = maker.probs

        def reference(rounds: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
            curve = asymptotic_bound(maker, self.context.seed, self.replications, rounds)
            return {} if curve is None else {BOUND: curve}

        return Panel(
            name=panel_name(maker),
            title=f"{TITLES[maker.family]}, p ∈ [{low:g}, {high:g}]",
            key={"family": maker.family, "p_low": low, "p_high": high},
            env=maker,
            policies=policies(maker, self.horizon),
            horizon=self.horizon,
            replications=self.replications,
            reference=reference,
        )

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return final regrets: a detailed table per panel, or one per family over ranges of p."""
        if len({panel.env.probs for panel in found}) > 1:
            for family in FAMILIES:
                mine = [panel for panel in found if panel.env.family == family]
                if mine:
                    columns = ["p {:g}–{:g}".format(*panel.env.probs) for panel in mine]
                    bounds = ", ".join(_bound_at_the_end(panel) or "none known" for panel in mine)
                    note = f"Asymptotic bound at the horizon: {bounds}."
                    yield side_by_side(TITLES[family], mine, columns, note)
            return
        for panel in found:
            bound = _bound_at_the_end(panel)
            note = f"Asymptotic bound at the horizon: {bound}." if bound else ""
            yield detailed_table(panel, STRONG, "strong baseline", note)

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge what the paper says about these panels."""
        one_range = len({panel.env.probs for panel in found}) == 1
        named = {TITLES[p.env.family] if one_range else p.name: p.result for p in found}
        light = {n: r for n, r in named.items() if not n.startswith(TITLES["exponential"])}
        here = conditions(found)
        ours = "Our algorithms are sublinear for every distribution: Algorithm 1"
        zi_ucb = (
            "ZI-UCB has lower (the paper: much lower) regret than the strong baseline for Gaussian "
            "and mixture:"
        )
        return (
            sublinear(f"{ours} as printed", named, ("ZI-UCB printed",)),
            sublinear(f"{ours} with the tight radius, Thompson sampling", named, ZERO_INFLATED[1:]),
            sublinear("The strong baseline is sublinear as well", named, (STRONG,)),
            *(far_higher(label, named) for label in BASELINES),
            below(f"{zi_ucb} as printed, {here}", light, "ZI-UCB printed", STRONG),
            below(f"{zi_ucb} tight radius, {here}", light, "ZI-UCB", STRONG),
            below(
                f"ZI-TS has lower regret than MOTS (Gaussian, mixture), {here}",
                light,
                "ZI-TS",
                "MOTS",
            ),
            lower(
                f"ZI-TS has the lowest regret of all methods of the paper, {here}",
                [
                    compare(name, result, "ZI-TS", label)
                    for name, result in light.items()
                    for label in ("ZI-UCB printed", STRONG, *BASELINES)
                    if label in result.labels
                ],
                lambda c: where(c.second, c.panel),
            ),
            lower(
                f"Our target: the lowest curve is one of those beyond the paper, {here}",
                [_best_of_both(name, result) for name, result in named.items()],
                lambda c: where(f"{c.first} against {c.second}", c.panel),
            ),
        )


def conditions(found: Iterable[Played]) -> str:
    """Return for which magnitudes, probabilities and horizon a verdict on panels holds."""
    panels = list(found)
    makers = [panel.env for panel in panels]
    low, high = min(m.probs[0] for m in makers), max(m.probs[1] for m in makers)
    least, most = makers[0].magnitudes
    return (
        f"for mu ~ U[{least:g}, {most:g}], σ = {makers[0].sigma:g}, p from {low:g} to {high:g}, "
        f"{horizons(panels)}"
    )


def panel_ids(tags: Sequence[str]) -> list[str]:
    """Return the ids of three environments per range of probabilities."""
    return [f"paper-mab-{family}-{tag}-v1" for tag in tags for family in FAMILIES]


def panel_name(maker: RandomMAB) -> str:
    """Return family and probabilities in words."""
    return f"{TITLES[maker.family]} p {maker.probs[0]:g}–{maker.probs[1]:g}"


# ------------------------------------------------------------------------------- settings, policies

_EXAMPLE = RandomMAB("gaussian")
SETTINGS = (
    Setting("confidence level of UCB kinds", "δ = 4/T²", "paper"),
    Setting(
        "mean magnitude",
        "uniform on [{:g}, {:g}], redrawn as well".format(*_EXAMPLE.magnitudes),
        "ours",
    ),
    Setting("Gaussian", f"standard deviation {_EXAMPLE.sigma:g}", "ours"),
    Setting(
        "mixture", f"½N(mu − 1, {_EXAMPLE.sigma:g}²) + ½N(mu + 1, {_EXAMPLE.sigma:g}²)", "ours"
    ),
    Setting("exponential", "mean mu", "ours"),
    Setting(
        "sizes given to policies",
        "smallest valid for every arm that can be drawn: sigma; sqrt(1 + sigma²) for the "
        "mixture; 1.43 times the largest mean for the exponential",
        "ours",
    ),
    Setting(
        "ZI-UCB printed",
        "Algorithm 1 with the sub-Weibull constants, Hoeffding occurrence bound and 1 for arms "
        "that never paid; the first pull of each arm counts",
        "paper",
    ),
    Setting(
        "ZI-UCB",
        "Algorithm 1 with the bound given the number of non-zero rewards, Chernoff occurrence "
        "bound, pooled magnitude for arms that never paid",
        "ours",
    ),
    Setting("ZI-TS", "clipped from above", "fix"),
    Setting("parameters of ZI-TS", "α = β = 1, ρ = 0.9, γ = 4 (the text gives ranges)", "ours"),
    Setting(
        "beyond the paper",
        "ZI-KL-UCB, ZI-IMED and ZI posterior are told the family and, where Gaussian, the "
        "size; ZI adaptive is told nothing",
        "ours",
    ),
    Setting(
        "Thompson sampling for exponential rewards",
        "the paper shows none; here a conjugate Gamma posterior, a stable-law version "
        "(stability 1.8), and MOTS with the sub-exponential size",
        "ours",
    ),
    Setting("MOTS", "ρ = 0.9999, α = 2, size of X", "paper"),
    Setting(
        "sub-exponential UCB",
        "radius α√(2 log(2/δ)/n) + α log(2/δ)/n (the printed α² in front of the root has the "
        "wrong dimension)",
        "fix",
    ),
    Setting("UCB1, kl-UCB", "scale that covers nearly all rewards", "ours"),
    Setting("pairing", "the j-th pull of an arm pays the same to every policy", "ours"),
)


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
        **_plain_ucbs(horizon=horizon, sigma=sigma),
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
        **_plain_ucbs(horizon=horizon, tail=tail),
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=lam),
        **_others(3 * largest, largest),
    }


def _plain_ucbs(**known: Any) -> dict[str, Any]:
    """Return UCB on the rewards as they come, with four opinions about their size."""
    sizes = ("component", "variance", "estimated", "true")
    labels = (*BASELINES[:3], STRONG)
    return {label: zib.mab.UCB(size=size, **known) for label, size in zip(labels, sizes)}


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
    total = np.zeros(t.size)
    for replication in range(replications):
        magnitudes, probs = maker.draw_parameters(stream(seed, Role.INSTANCE, replication))
        means = magnitudes * probs
        worse = means < means.max()
        cost = zib.theory.divergence_to(
            magnitudes[worse],
            probs[worse],
            means.max(),
            maker.sigma if maker.family == "gaussian" else None,
            family=maker.family,
        )
        d = np.asarray(cost)
        pulls = np.minimum(np.log1p(t[:, None] * d) / d, t[:, None] / means.size)
        total += pulls @ (means.max() - means[worse])
    return total / replications


def _bound_at_the_end(panel: Played) -> str:
    return number(float(panel.references[BOUND][-1])) if BOUND in panel.references else ""


# ------------------------------------------------------------------------------------------ claims


def sublinear(claim: str, panels: Mapping[str, Results], labels: Sequence[str]) -> Verdict:
    """Judge whether regret grows sublinearly in the second half of the run."""
    return grows(
        claim, ((name, result, label) for name, result in panels.items() for label in labels)
    )


def _best_of_both(name: str, result: Results) -> Comparison:
    """Compare the best of the policies beyond the paper with the best of the others."""
    ours = lowest(result, BEYOND)
    theirs = lowest(result, (label for label in result.labels if label not in BEYOND))
    return compare(name, result, ours, theirs, chosen=True)


def far_higher(label: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge "linear or significantly higher regret in some cases" for one baseline.

    It takes one panel to hold, and all of them to fail.
    """
    claim = f"{label}: linear or significantly higher regret than ours in some cases"
    evidence: list[str] = []
    linear: list[str] = []
    higher: list[Comparison] = []
    everything: list[Comparison] = []
    sublinear = True
    for name, result in panels.items():
        ours = "ZI-TS" if "ZI-TS" in result.labels else "ZI-TS exponential"
        grows = growth(result, label)
        against = [
            compare(name, result, label, other, factor=MUCH_HIGHER) for other in ("ZI-UCB", ours)
        ]
        if grows.word == "linear":
            linear.append(name)
        sublinear = sublinear and grows.word == "sublinear"
        higher.extend([c for c in against if c.higher][-1:])
        everything.extend(against)
        evidence.append(f"{name}: grows like {grows} ({grows.word})")
        evidence.extend(map(str, against))
    found = []
    if linear:
        found.append(f"linear in {len(linear)} of {len(panels)} panels ({', '.join(linear)})")
    if higher:
        worst = max(higher, key=lambda c: c.ratio)
        found.append(
            f"at least {MUCH_HIGHER:g} times ours in {len(higher)} of {len(panels)} panels, most "
            f"in {worst.panel} ({worst.ratio:.1f} times {worst.second})"
        )
    if found:
        return Verdict(claim, "holds", f"holds: {'; '.join(found)}", tuple(evidence))
    top = max(everything, key=lambda c: c.ratio)
    most = f"at most {top.ratio:.2f} times {top.second}, in {top.panel}"
    if sublinear and all(c.lower for c in everything):
        return Verdict(claim, "fails", f"does not hold: nowhere linear, {most}", tuple(evidence))
    words = f"{undecided(c.n for c in everything)}: {most}"
    return Verdict(claim, "open", words, tuple(evidence))
