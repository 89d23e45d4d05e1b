"""The multi-armed study: ten arms, three families of rewards, all policies of the paper.

Figures 2, S1 and S2 are the same study with other probabilities and horizons. This file says which
policies play with which parameters, runs one panel, and judges the paper's claims on panels.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib._rng import Role, stream
from zib.env.generators import FAMILIES, Family, RandomMAB
from zib.experiments.judge import (
    Comparison,
    Growth,
    below,
    compare,
    from_cases,
    growth,
    listing,
    number,
    where,
)
from zib.experiments.record import (
    Context,
    Picture,
    Record,
    Setting,
    Table,
    Verdict,
    provenance,
)
from zib.plot import FigureFiles, legend_below, paper_style, regret_panel, save_figure
from zib.sim import Results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLES: dict[Family, str] = {
    "gaussian": "Gaussian",
    "mixture": "Gaussian mixture",
    "exponential": "Exponential",
}
ZERO_INFLATED = ("ZI-UCB printed", "ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable")
STRONG = "UCB true size (strong)"
BASELINES = ("UCB component size", "UCB variance size", "UCB estimated size", "MOTS")
OTHERS = ("UCB1", "kl-UCB", "Normal TS", "ε-greedy")
GROUPS = {
    "made for zero inflation": ZERO_INFLATED,
    "the paper's baselines": (STRONG, *BASELINES),
    "what else a user might pick": OTHERS,
    "yardstick": ("asymptotic bound",),
}
LEGEND_HEIGHT = 1.72  # inches under the panels, small print included
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
        **{
            f"UCB {size} size" + (" (strong)" if size == "true" else ""): zib.mab.UCB(
                horizon=horizon, tail=tail, size=size
            )
            for size in ("component", "variance", "estimated", "true")
        },
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=lam),
        **_others(3 * largest, largest),
    }


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


def run_panels(
    context: Context,
    ids: Sequence[str],
    horizon: int,
    replications: int,
) -> Iterator[Panel]:
    """Play all policies in each environment of `ids`; yield panels as they are finished.

    Stops early, without the unfinished panel, when the user interrupts.
    """
    for i, name in enumerate(ids):
        maker = zib.env.make(name)
        assert isinstance(maker, RandomMAB)
        context.tell(name, i / len(ids))

        def report(done: int, total: int, name: str = name, i: int = i) -> None:
            if done % 100 == 0:  # often enough for a bar, seldom enough to cost nothing
                context.tell(name, (i + done / total) / len(ids))

        with warnings.catch_warnings():
            # an interrupted simulation says so by a warning; here its result says so
            warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
            result = zib.simulate(
                policies(maker, horizon),
                maker,
                horizon=horizon,
                replications=replications,
                seed=context.seed,
                checkpoints=rounds_to_record(horizon),
                workers=context.workers,
                progress=report,
            )
        if not result.complete:
            return
        bound = asymptotic_bound(maker, context.seed, replications, result.checkpoints)
        yield Panel(maker.family, maker.probs, result, bound)


def panel_ids(tags: Sequence[str]) -> list[str]:
    """Return the ids of three panels per range of probabilities."""
    return [f"paper-mab-{family}-{tag}-v1" for tag in tags for family in FAMILIES]


# ------------------------------------------------------------------------------------ figures


def draw(
    panels: Sequence[Panel], folder: Path, stem: str, origin: Mapping[str, Any], *, log: bool
) -> FigureFiles:
    """Draw panels three in a row and write figure and numbers."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 3)
    with paper_style():
        fig = Figure()
        axes = fig.subplots(rows, 3, squeeze=False)
        flat = list(axes.flat)
        for ax, panel in zip(flat, panels):
            references = (
                {} if panel.lower_bound is None else {"asymptotic bound": panel.lower_bound}
            )
            regret_panel(ax, panel.result, log=log, references=references)
            low, high = panel.probs
            ax.set_title(f"{TITLES[panel.family]}, p ∈ [{low:g}, {high:g}]")
        for ax in flat[len(panels) :]:
            ax.set_visible(False)
        for row in axes:
            row[0].set_ylabel("cumulative regret")
        arrange(fig, rows, 3)
        return save_figure(fig, folder, stem, numbers(panels), origin)


def arrange(fig: Figure, rows: int, columns: int) -> None:
    """Give panels of one size fixed places, with the grouped legend under them."""
    width, panel, gap, left, top, under = 11.6, 2.7, 0.95, 0.8, 0.35, 0.62
    height = rows * panel + (rows - 1) * gap + top + under + LEGEND_HEIGHT
    fig.set_size_inches(width, height)
    fig.subplots_adjust(
        left=left / width,
        right=1 - 0.12 / width,
        top=1 - top / height,
        bottom=(under + LEGEND_HEIGHT) / height,
        hspace=gap / panel,
        wspace=0.2,
    )
    legend_below(fig, fig.axes, GROUPS)


def numbers(panels: Sequence[Panel]) -> pd.DataFrame:
    """Return mean regret and its interval for every panel, policy and checkpoint."""
    import pandas as pd

    parts = []
    for panel in panels:
        result = panel.result
        low, high = result.interval()
        mean = result.mean()
        for i, label in enumerate(result.labels):
            parts.append(
                pd.DataFrame(
                    {
                        "family": panel.family,
                        "p_low": panel.probs[0],
                        "p_high": panel.probs[1],
                        "policy": label,
                        "round": result.checkpoints,
                        "regret": mean[i],
                        "low": low[i],
                        "high": high[i],
                        "replications": int(result.finished[i].sum()),
                    }
                )
            )
        if panel.lower_bound is not None:
            parts.append(
                pd.DataFrame(
                    {
                        "family": panel.family,
                        "p_low": panel.probs[0],
                        "p_high": panel.probs[1],
                        "policy": "asymptotic bound",
                        "round": result.checkpoints,
                        "regret": panel.lower_bound,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def pictures(
    panels: Sequence[Panel], folder: Path, stem: str, origin: Mapping[str, Any], *, log: bool
) -> tuple[Picture, ...]:
    """Draw the figure on linear axes, as the paper does, and perhaps on logarithmic ones."""
    draw(panels, folder, stem, origin, log=False)
    best = listing([_lowest(panel) for panel in panels])
    linear = Picture(
        stem,
        "Mean cumulative regret with 95 % bands, linear axes as in the paper. Thin grey and "
        "sand-coloured curves are policies a user might pick instead. Dotted black: the "
        "Lai–Robbins lower bound in a form that is sensible at finite t, "
        "Σ Δ·min(log(1 + t·d)/d, t/K); it binds in the limit only (no closed form for the "
        "mixture).",
        f"Regret curves of all policies; lowest at the end: {best}.",
    )
    if not log:
        return (linear,)
    draw(panels, folder, f"{stem}-log", origin, log=True)
    return (
        linear,
        Picture(
            f"{stem}-log",
            "The same on logarithmic axes: linear growth is a line of slope 1, logarithmic growth "
            "bends towards the horizontal.",
            "The same regret curves on logarithmic axes.",
        ),
    )


def _lowest(panel: Panel) -> str:
    finals = panel.result.mean()[:, -1]
    return panel.result.labels[int(np.argmin(finals))]


def tables(panels: Sequence[Panel]) -> tuple[Table, ...]:
    """Return final regrets: one detailed table per panel, or one per family over ranges of p."""
    if len({panel.probs for panel in panels}) > 1:
        return tuple(
            _family_table([p for p in panels if p.family == family])
            for family in FAMILIES
            if any(p.family == family for p in panels)
        )
    out = []
    for panel in panels:
        result = panel.result
        mean, (low, high) = result.mean()[:, -1], (x[:, -1] for x in result.interval())
        strong = float(mean[result.labels.index(STRONG)])
        rows = []
        for i in np.argsort(mean):
            label = result.labels[int(i)]
            rows.append(
                (
                    label,
                    number(float(mean[i])),
                    f"{number(float(low[i]))} to {number(float(high[i]))}",
                    f"{mean[i] / strong:.2f}",
                    str(growth(result, label)),
                )
            )
        note = ""
        if panel.lower_bound is not None:
            note = f"Asymptotic bound at the horizon: {number(float(panel.lower_bound[-1]))}."
        out.append(
            Table(
                f"{panel.name}: regret at round {int(result.checkpoints[-1])}",
                ("policy", "regret", "95 % interval", "× strong baseline", "growth"),
                tuple(rows),
                note,
            )
        )
    return tuple(out)


def _family_table(panels: Sequence[Panel]) -> Table:
    """Return final regrets of one family, a column per range of p."""
    labels = panels[0].result.labels
    finals = np.stack([panel.result.mean()[:, -1] for panel in panels])
    intervals = [panel.result.interval() for panel in panels]
    rows = []
    for i in np.argsort(finals.mean(axis=0)):
        cells = (
            f"{number(float(final[i]))} [{number(float(low[i, -1]))}, {number(float(high[i, -1]))}]"
            for final, (low, high) in zip(finals, intervals)
        )
        rows.append((labels[int(i)], *cells))
    bounds = [
        number(float(p.lower_bound[-1])) if p.lower_bound is not None else "none known"
        for p in panels
    ]
    return Table(
        f"{TITLES[panels[0].family]}: regret at round {int(panels[0].result.checkpoints[-1])} "
        "with 95 % intervals",
        ("policy", *(f"p {p.probs[0]:g}–{p.probs[1]:g}" for p in panels)),
        tuple(rows),
        f"Asymptotic bound at the horizon: {', '.join(bounds)}.",
    )


# ----------------------------------------------------------------------------------- verdicts


class _Case(NamedTuple):
    panel: str
    label: str
    growth: Growth

    def __str__(self) -> str:
        return f"{self.panel}: {self.label} grows like {self.growth} ({self.growth.word})"


def verdicts(panels: Sequence[Panel]) -> tuple[Verdict, ...]:
    """Judge what the paper says about these panels."""
    one_range = len({panel.probs for panel in panels}) == 1
    by_name = {TITLES[p.family] if one_range else p.name: p.result for p in panels}
    light = {n: r for n, r in by_name.items() if not n.startswith(TITLES["exponential"])}
    found = [
        sublinear(
            "Our algorithms are sublinear for every distribution: Algorithm 1 as printed",
            by_name,
            ("ZI-UCB printed",),
        ),
        sublinear(
            "Our algorithms are sublinear for every distribution: Algorithm 1 with the tight "
            "radius, Thompson sampling",
            by_name,
            ("ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable"),
        ),
        sublinear("The strong baseline is sublinear as well", by_name, (STRONG,)),
        *(far_higher(label, by_name) for label in BASELINES),
        below(
            "ZI-UCB has lower (the paper: much lower) regret than the strong baseline for Gaussian "
            "and mixture: as printed",
            light,
            "ZI-UCB printed",
            STRONG,
        ),
        below(
            "ZI-UCB has lower (the paper: much lower) regret than the strong baseline for Gaussian "
            "and mixture: tight radius",
            light,
            "ZI-UCB",
            STRONG,
        ),
        below("ZI-TS has lower regret than MOTS (Gaussian, mixture)", light, "ZI-TS", "MOTS"),
        outperforms_all("ZI-TS has the lowest regret of all methods of the paper", light),
    ]
    return tuple(found)


def sublinear(claim: str, panels: Mapping[str, Results], labels: Sequence[str]) -> Verdict:
    """Judge whether regret grows sublinearly in the second half of the run."""
    cases = [
        _Case(name, label, growth(result, label))
        for name, result in panels.items()
        for label in labels
        if label in result.labels
    ]
    return from_cases(
        claim,
        cases,
        good=lambda c: c.growth.word == "sublinear",
        bad=lambda c: c.growth.word == "linear",
        name=lambda c: where("" if len(labels) == 1 else c.label, c.panel),
    )


def far_higher(label: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge "linear or significantly higher regret in some cases" for one baseline."""
    claim = f"{label}: linear or significantly higher regret than ours in some cases"
    evidence: list[str] = []
    linear: list[str] = []
    higher: list[Comparison] = []
    everything: list[Comparison] = []
    unsure = False
    for name, result in panels.items():
        ours = "ZI-TS" if "ZI-TS" in result.labels else "ZI-TS exponential"
        grows = growth(result, label)
        against = [compare(name, result, label, other) for other in ("ZI-UCB", ours)]
        worse = [c for c in against if c.higher and c.ratio >= MUCH_HIGHER]
        if grows.word == "linear":
            linear.append(name)
        unsure = unsure or grows.word == "undecided"
        higher.extend(worse[-1:])
        everything.extend(against)
        evidence.append(
            f"{name}: grows like {grows} ({grows.word}); "
            + "; ".join(f"{c.ratio:.2f} times {c.second}" for c in against)
        )
    found = []
    if linear:
        found.append(f"linear in {len(linear)} of {len(panels)} panels ({', '.join(linear)})")
    if higher:
        worst = max(higher, key=lambda c: c.ratio)
        found.append(
            f"at least {MUCH_HIGHER:g} times ours in {len(higher)} of {len(panels)} panels, most "
            f"in {worst.panel} ({worst.ratio:.1f} times {worst.second})"
        )
    if not found:
        top = max(everything, key=lambda c: c.ratio)
        most = f"at most {top.ratio:.2f} times {top.second}, in {top.panel}"
        if top.ratio >= MUCH_HIGHER or unsure:
            words = f"undecided: {most}, and growth not clearly linear, but within the noise"
            return Verdict(claim, "open", words, tuple(evidence))
        return Verdict(claim, "fails", f"does not hold: nowhere linear, {most}", tuple(evidence))
    return Verdict(claim, "holds", f"holds: {'; '.join(found)}", tuple(evidence))


def outperforms_all(claim: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge whether ZI-TS is below every other method of the paper."""
    cases = [
        compare(name, result, "ZI-TS", label)
        for name, result in panels.items()
        for label in ("ZI-UCB printed", STRONG, *BASELINES)
        if label in result.labels
    ]
    return from_cases(
        claim,
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=lambda c: where(c.second, c.panel),
    )


def settings(
    horizon: int, replications: int, context: Context, probs: str, paper_horizon: int
) -> tuple[Setting, ...]:
    """Return the settings of a multi-armed figure."""
    maker = RandomMAB("gaussian")
    low, high = maker.magnitudes
    return (
        Setting("arms", "K = 10", "paper"),
        Setting("probability of paying", f"{probs}, redrawn per replication", "paper"),
        Setting("horizon", f"T = {horizon}", "paper" if horizon == paper_horizon else "ours"),
        Setting(
            "replications",
            f"N = {replications}" + ("" if replications == 50 else " (the paper: 50)"),
            "paper" if replications == 50 else "ours",
        ),
        Setting("confidence level of UCB kinds", "δ = 4/T²", "paper"),
        Setting("mean magnitude", f"uniform on [{low:g}, {high:g}], redrawn as well", "ours"),
        Setting("Gaussian", f"standard deviation {maker.sigma:g}", "ours"),
        Setting("mixture", f"½N(mu − 1, {maker.sigma:g}²) + ½N(mu + 1, {maker.sigma:g}²)", "ours"),
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
        Setting("ZI-TS", "clipped from above; α = β = 1, ρ = 0.9, γ = 4", "fix"),
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
        Setting("seed", str(context.seed), "ours"),
    )


def record(
    context: Context,
    *,
    id: str,
    title: str,
    about: str,
    tags: Sequence[str],
    horizon: int,
    replications: int,
    paper_horizon: int,
    notes: Sequence[str] = (),
    log: bool = True,
) -> Record:
    """Run the panels of one figure and return everything the report shows about it.

    An interrupted run is reported from the panels that were finished; without any it raises
    KeyboardInterrupt.
    """
    started = time.perf_counter()
    ids = panel_ids(tags)
    panels = list(run_panels(context, ids, horizon, replications))
    if not panels:
        raise KeyboardInterrupt
    ranges = [zib.env.PAPER_PROBS[tag] for tag in tags]
    probs = "p ~ " + ", ".join(f"U[{low:g}, {high:g}]" for low, high in ranges)
    plan = [panel.result.provenance["plan_hash"] for panel in panels]
    origin = provenance(plan, context.seed)
    context.tell("drawing", 0.97)
    missing = len(ids) - len(panels)
    stopped = (f"Interrupted: {missing} of {len(ids)} panels are missing.",) if missing else ()
    return Record(
        id=id,
        title=title,
        about=about,
        scale=context.scale,
        settings=settings(horizon, replications, context, probs, paper_horizon),
        pictures=pictures(panels, context.folder, id, origin, log=log),
        tables=tables(panels),
        verdicts=verdicts(panels),
        notes=(*stopped, *notes),
        seconds=time.perf_counter() - started,
        provenance=origin,
        interrupted=bool(missing),
    )
