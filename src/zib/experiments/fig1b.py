"""Figure 1b: upper confidence bounds for the mean reward, method by method, and what they cover.

Rewards of a single arm; after n of them each method gives a 1 − δ upper bound for mu·p. The
yardstick is the Monte Carlo quantile: the smallest constant that, added to the sample mean, covers
mu·p with probability 1 − δ. A bound is *valid* if it covers mu·p often enough, and that is
measured here, not inferred from its curve lying above the yardstick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib import theory
from zib.cases.loan import LoanMarket
from zib.core.rng import Role, stream
from zib.env import Gaussian, QuantileTable, ZeroInflated
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment, Scaled
from zib.experiments.judge import Decision, decide_share, from_cases
from zib.experiments.record import Setting, Table, Verdict
from zib.mab import SubGaussian
from zib.report import Style, legend_below
from zib.report.numbers import listing, number
from zib.report.style import style_of
from zib.theory._vectorise import over
from zib.theory.means import given_count_radius_scalar

SIZES = (30, 60, 125, 250, 500, 1000, 2000, 4000, 8000)
DELTA = 0.05

Array = NDArray[np.float64]


class Case(NamedTuple):
    """One arm whose mean reward is to be bounded."""

    name: str
    reward: ZeroInflated


class Sample(NamedTuple):
    """Sufficient statistics after n rewards, one row per Monte Carlo run."""

    n: Array
    paid: Array
    total: Array
    squares: Array


class Method(NamedTuple):
    """A bound: its name, whether the theory promises 1 − δ, and its formula."""

    name: str
    zero_inflated: bool
    promised: bool
    bound: Callable[[Sample, Case], Array]


LEVEL = math.log(1 / DELTA)


def _prob(s: Sample) -> Array:
    return s.paid / s.n


def _magnitude(s: Sample) -> Array:
    return s.total / np.maximum(s.paid, 1.0)


def _unless_unpaid(s: Sample, bound: Array) -> Array:
    # Without a single non-zero reward the data say nothing about mu.
    return np.where(s.paid > 0, bound, np.inf)


def _product(s: Sample, radius: Array, upper: Array, lower: Array) -> Array:
    mean_upper = _magnitude(s) + radius
    return _unless_unpaid(s, np.asarray(theory.product_upper(mean_upper, lower, upper)))


def _occurrence(s: Sample, method: str) -> tuple[Array, Array]:
    return (
        np.asarray(theory.bernoulli_upper(s.paid, s.n, DELTA, method)),
        np.asarray(theory.bernoulli_lower(s.paid, s.n, DELTA, method)),
    )


def _printed(s: Sample, case: Case) -> Array:
    prob = np.maximum(_prob(s), 1.0 / s.n)
    radius = theory.zi_subweibull_radius(s.n, prob, DELTA, 2.0, subweibull_size(case))
    return _product(s, np.asarray(radius), *_occurrence(s, "hoeffding"))


def _given_count(s: Sample, case: Case) -> Array:
    sigma = case.reward.law.subgaussian_size
    return np.asarray(theory.given_count_radius(np.maximum(s.paid, 1.0), DELTA, sigma))


def _given_count_hoeffding(s: Sample, case: Case) -> Array:
    return _product(s, _given_count(s, case), *_occurrence(s, "hoeffding"))


def _given_count_kl(s: Sample, case: Case) -> Array:
    return _product(s, _given_count(s, case), *_occurrence(s, "kl"))


def _joint(s: Sample, case: Case, level: float) -> Array:
    sigma = case.reward.law.subgaussian_size
    count = np.maximum(s.paid, 1.0)
    return _unless_unpaid(s, np.asarray(theory.joint_kl_upper(s.n, count, s.total, sigma, level)))


def _joint_kl(s: Sample, case: Case) -> Array:
    return _joint(s, case, LEVEL)


def _joint_kl_proven(s: Sample, case: Case) -> Array:
    return _joint(s, case, float(theory.joint_kl_level(DELTA)))


def _naive(s: Sample, square: float | Array) -> Array:
    radius = over(given_count_radius_scalar, s.n, LEVEL, np.sqrt(square))
    return np.asarray(s.total / s.n + radius)


def _naive_true(s: Sample, case: Case) -> Array:
    return _naive(s, case.reward.subgaussian_size**2)


def _naive_component(s: Sample, case: Case) -> Array:
    return _naive(s, case.reward.law.subgaussian_size**2)


def _naive_variance(s: Sample, case: Case) -> Array:
    mean = s.total / s.n
    return _naive(s, np.maximum(s.squares / s.n - mean * mean, 0.0))


def _naive_estimated(s: Sample, case: Case) -> Array:
    sigma = case.reward.law.subgaussian_size
    prob = np.clip(_prob(s), 1e-12, 1.0)
    proxy = np.asarray(theory.product_variance_proxy(_magnitude(s), prob, sigma))
    return _naive(s, np.where(s.paid > 0, proxy, sigma * sigma))


METHODS = (
    Method("ZI-UCB printed", True, True, _printed),
    Method("ZI given B, Hoeffding", True, True, _given_count_hoeffding),
    Method("ZI-UCB", True, True, _given_count_kl),
    Method("ZI-KL-UCB", True, False, _joint_kl),
    Method("ZI joint, proven", True, True, _joint_kl_proven),
    Method("UCB true size (strong)", False, True, _naive_true),
    Method("UCB component size", False, False, _naive_component),
    Method("UCB variance size", False, False, _naive_variance),
    Method("UCB estimated size", False, False, _naive_estimated),
)
WORDS = {
    "ZI-UCB printed": "product, sub-Weibull radius (printed)",
    "ZI given B, Hoeffding": "product given B, Hoeffding",
    "ZI-UCB": "product given B, Chernoff",
    "ZI-KL-UCB": "joint likelihood ratio, level log(1/δ)",
    "ZI joint, proven": "joint likelihood ratio, proven level",
    "UCB true size (strong)": "plain, true size of R (strong)",
    "UCB component size": "plain, size of X",
    "UCB variance size": "plain, sample variance of R",
    "UCB estimated size": "plain, size of R estimated",
    "Monte Carlo": "Monte Carlo: tightest valid constant",
}
STYLES = {
    "ZI given B, Hoeffding": Style("#66CCAA", "o", (0, (1, 1)), 2.0),
    "ZI joint, proven": Style("#332288", "D", (0, (6, 2, 1, 2)), 2.0),
}


def subweibull_size(case: Case) -> float:
    """Return C with E exp((X − mu)²/C²) <= 2 for the non-zero rewards of a case."""
    law = case.reward.law
    if isinstance(law, Gaussian):
        return SubGaussian(law.sigma).size
    assert isinstance(law, QuantileTable)
    return law.subweibull_size(2.0)


def simulate(case: Case, sizes: Sequence[int], runs: int, rng: np.random.Generator) -> list[Sample]:
    """Return the statistics of `runs` samples at each size; larger samples extend smaller ones."""
    count, total, squares = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    samples, before = [], 0
    for n in sizes:
        new = rng.binomial(n - before, case.reward.prob, runs)
        draws = case.reward.law.sample(rng, int(new.sum()))
        ends = np.cumsum(new)
        count = count + new
        total = total + _sums(draws, ends)
        squares = squares + _sums(draws * draws, ends)
        samples.append(Sample(np.full(runs, float(n)), count, total, squares))
        before = n
    return samples


def _sums(values: Array, ends: NDArray[np.int64]) -> Array:
    running = np.concatenate([[0.0], np.cumsum(values)])
    return np.diff(running[np.concatenate([[0], ends])])


class Measured(NamedTuple):
    """One method on one case: median bound and coverage at each sample size."""

    case: Case
    method: Method
    sizes: tuple[int, ...]
    median: Array
    covered: NDArray[np.int64]
    runs: int
    start: int

    @property
    def excess(self) -> Array:
        """Median bound minus mu·p."""
        return self.median - self.case.reward.mean

    @property
    def coverage(self) -> Array:
        """Share of runs in which the bound covered mu·p."""
        return self.covered / self.runs

    @property
    def applies(self) -> bool:
        """Whether the condition of the bound holds for one of the sample sizes."""
        return self.sizes[-1] >= self.start

    def validity(self) -> Validity:
        """Decide whether the bound covers often enough wherever its theory applies."""
        return Validity(
            self,
            {
                n: decide_share(int(covered), self.runs, 1.0 - DELTA)
                for n, covered in zip(self.sizes, self.covered)
                if n >= self.start
            },
        )


class Validity(NamedTuple):
    """Whether a bound covers mu·p with probability 1 − δ, at each sample size it applies to."""

    measured: Measured
    decisions: dict[int, Decision]

    @property
    def n(self) -> int:
        """Number of Monte Carlo runs."""
        return self.measured.runs

    @property
    def too_low(self) -> list[int]:
        """Sample sizes at which the coverage is below 1 − δ."""
        return [n for n, decision in self.decisions.items() if decision.side < 0]

    @property
    def holds(self) -> bool:
        """Whether the bound is valid at every sample size it applies to."""
        return bool(self.decisions) and all(d.side > 0 for d in self.decisions.values())

    @property
    def word(self) -> str:
        """In a few words."""
        if not self.decisions:
            return f"does not apply on this grid (needs n ≥ {self.measured.start})"
        if self.too_low:
            return f"not valid, from n = {self.too_low[0]} to {self.too_low[-1]}"
        return "valid" if self.holds else "undecided"

    def __str__(self) -> str:
        found = self.measured
        start = f"{found.case.name}: {WORDS[found.method.name]}: "
        if not self.decisions:
            return start + self.word
        promised = [i for i, n in enumerate(found.sizes) if n >= found.start]
        at = min(promised, key=lambda i: int(found.covered[i]))
        words = f"lowest coverage {found.coverage[at]:.3f} at n = {found.sizes[at]}"
        if self.too_low:
            words += f"; too low at n = {listing([str(n) for n in self.too_low])}"
        return start + words


def measure(method: Method, case: Case, samples: Sequence[Sample]) -> Measured:
    """Return median and coverage of one bound."""
    truth = case.reward.mean
    bounds = [method.bound(s, case) for s in samples]
    start = 0
    if method.name == "ZI-UCB printed":
        start = math.ceil(theory.zi_subweibull_min_n(case.reward.prob, DELTA))
    return Measured(
        case,
        method,
        tuple(int(s.n[0]) for s in samples),
        np.array([float(np.median(b)) for b in bounds]),
        np.array([int((b >= truth).sum()) for b in bounds]),
        samples[0].n.size,
        start,
    )


class Bounds(NamedTuple):
    """What was measured: every method on every case, and the yardstick of each case."""

    cases: tuple[Case, ...]
    measured: list[Measured]
    yardsticks: dict[str, Array]

    def of(self, case: Case, method: str) -> Measured:
        """Return how one method did on one case."""
        return next(m for m in self.measured if m.case is case and m.method.name == method)


class Figure1b(Experiment[Bounds]):
    """Every bound on three arms."""

    order = 1.5
    title = "Figure 1b: upper confidence bounds for mu·p"
    about = (
        "The reward of one arm is R = X·Y. Left: all offers of the loan market of figure 1a. "
        "Middle and right: Gaussian X with frequent and rare rewards."
    )
    weight = 1.0
    runs = Scaled(quick=2000, paper=10_000)

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The arms."""
        return (
            Case("Loan market", LoanMarket().history),
            Case("Gaussian, p = 0.3", ZeroInflated(Gaussian(2.0, 0.5), 0.3)),
            Case("Gaussian, p = 0.02", ZeroInflated(Gaussian(4.0, 1.0), 0.02)),
        )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        sizes = ", ".join(f"{c.reward.law.subgaussian_size:.3g}" for c in self.cases)
        taus = ", ".join(f"{c.reward.subgaussian_size:.3g}" for c in self.cases)
        return (
            Setting(
                "methods", "the zero-inflated product, and plain bounds with four sizes", "paper"
            ),
            Setting("level", f"δ = {DELTA:g}", "ours"),
            Setting("data", "synthetic loan market; two Gaussian arms", "ours"),
            Setting("size of X given to the methods", f"smallest valid: {sizes}", "ours"),
            Setting("true size of R", f"smallest valid: {taus}", "ours"),
            Setting(
                "plain bounds",
                "one-sided, with log(1/δ); the printed log(2/δ) would be 11 % wider",
                "ours",
            ),
            Setting(
                "products",
                "each part at δ/2; sign-safe; the probability capped at 1; infinite while nothing "
                "was paid",
                "fix",
            ),
            Setting(
                "joint likelihood ratio",
                f"level log(1/δ) = {LEVEL:.2f}, as an index policy would use, and the proven level "
                f"{theory.joint_kl_level(DELTA):.2f}",
                "ours",
            ),
            Setting("Monte Carlo runs", str(self.runs), "ours"),
        )

    def measure(self) -> Bounds:
        """Simulate rewards and compute every bound from the same ones."""
        measured: list[Measured] = []
        yardsticks: dict[str, Array] = {}
        for i, case in enumerate(self.cases):
            self.context.tell(case.name, i / len(self.cases))
            rng = stream(self.context.seed, Role.ENVIRONMENT, i)
            samples = simulate(case, SIZES, self.runs, rng)
            truth = case.reward.mean
            yardsticks[case.name] = np.array(
                [truth + np.quantile(truth - s.total / s.n, 1.0 - DELTA) for s in samples]
            )
            measured += [measure(method, case, samples) for method in METHODS]
        return Bounds(self.cases, measured, yardsticks)

    def tables(self, found: Bounds) -> Iterable[Table]:
        """Return width and coverage, a table per case."""
        return (_table(case, found) for case in found.cases)

    def claims(self, found: Bounds) -> Iterable[Verdict]:
        """Judge whether the bounds are valid, and whose is tighter."""
        verdict = from_cases(
            "Every bound shown is valid (its curve lies above the Monte Carlo quantile)",
            [m.validity() for m in found.measured if m.applies],
            good=lambda v: v.holds,
            bad=lambda v: bool(v.too_low),
            name=lambda v: (WORDS[v.measured.method.name], v.measured.case.name),
        )
        yield replace(verdict, words=verdict.words + _aside(found.measured))
        for label, who in (
            ("ZI-UCB printed", "The printed zero-inflated bound"),
            ("ZI-UCB", "The zero-inflated bound given B with Chernoff"),
            ("ZI joint, proven", "The joint likelihood-ratio bound at its proven level (ours)"),
            ("ZI-KL-UCB", "The joint likelihood-ratio bound at level log(1/δ) (ours)"),
        ):
            yield _tighter(
                f"{who} is tighter than the plain bound with the true size", label, found
            )

    def figures(self, found: Bounds) -> Iterable[Drawn]:
        """Draw widths over coverages, a column per case."""
        import pandas as pd
        from matplotlib.figure import Figure

        measured = found.measured
        rows = []
        fig = Figure(figsize=(11.6, 8.9))
        axes = fig.subplots(2, len(found.cases), height_ratios=(2.0, 1.0), sharex=True)
        fig.subplots_adjust(left=0.07, right=0.99, top=0.955, bottom=0.275, hspace=0.1, wspace=0.2)
        for column, case in enumerate(found.cases):
            top, bottom = axes[:, column]
            truth = case.reward.mean
            for m in measured:
                if m.case is not case:
                    continue
                style = STYLES.get(m.method.name, style_of(m.method.name)).arguments()
                finite = np.isfinite(m.median) & (m.excess > 0)
                sizes = np.array(m.sizes)
                name = WORDS[m.method.name]
                top.plot(sizes[finite], m.excess[finite], label=name, **style)
                bottom.plot(sizes, m.coverage, **style)
                rows += [
                    (case.name, name, n, truth, bound, cover)
                    for n, bound, cover in zip(m.sizes, m.median, m.coverage)
                ]
            ideal = found.yardsticks[case.name]
            top.plot(
                measured[0].sizes,
                ideal - truth,
                label=WORDS["Monte Carlo"],
                **style_of("Monte Carlo").arguments(),
            )
            rows += [
                (case.name, WORDS["Monte Carlo"], n, truth, bound, 1.0 - DELTA)
                for n, bound in zip(measured[0].sizes, ideal)
            ]
            start = float(theory.zi_subweibull_min_n(case.reward.prob, DELTA))
            if start < measured[0].sizes[-1]:
                for ax in (top, bottom):
                    ax.axvline(start, color="#777777", linewidth=0.9, linestyle=(0, (2, 2)))
            top.set_title(case.name)
            top.set_xscale("log")
            top.set_yscale("log")
            top.minorticks_off()
            top.set_xlim(0.85 * measured[0].sizes[0], 1.15 * measured[0].sizes[-1])
            bottom.axhline(1.0 - DELTA, color="black", linewidth=1.2)
            bottom.set_ylim(0.75, 1.005)
            bottom.set_xlabel("number of rewards n")
            bottom.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            top.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes[0, 0].set_ylabel("upper bound − mu·p (median)")
        axes[1, 0].set_ylabel("coverage")
        groups = {
            "zero-inflated": [WORDS[m.name] for m in METHODS if m.zero_inflated],
            "on the reward itself": [WORDS[m.name] for m in METHODS if not m.zero_inflated],
            "yardstick": [WORDS["Monte Carlo"]],
        }
        legend_below(fig, list(axes[0]), groups)
        numbers = pd.DataFrame(
            rows, columns=["case", "bound", "n", "mean", "median_bound", "coverage"]
        )
        yield Drawn(
            fig,
            numbers,
            "Top: median over Monte Carlo runs of each upper bound minus the true mean against the "
            "number of rewards. Lower is tighter; the black line is the tightest constant that is "
            "valid. Dotted vertical line: where the printed bound's condition n ≥ 4 log(2/δ)/p² "
            "starts to hold. Bottom: how often each bound covered the true mean; valid bounds stay "
            "above the line at 1 − δ.",
            "Widths and coverages of nine upper confidence bounds on three arms.",
        )


def _aside(measured: Iterable[Measured]) -> str:
    """Return in words which bounds make no statement at any sample size of the grid."""
    return "".join(
        f"; {WORDS[m.method.name]} does not apply on this grid for {m.case.name} (needs n ≥ "
        f"{m.start}, the grid ends at {m.sizes[-1]})"
        for m in measured
        if not m.applies
    )


class _Tightness(NamedTuple):
    case: str
    label: str
    wins: list[int]
    valid: Validity
    sizes: tuple[int, ...]
    ratio: float
    to_yardstick: float

    @property
    def n(self) -> int:
        """Number of Monte Carlo runs."""
        return self.valid.n

    def __str__(self) -> str:
        where = f"from n = {self.wins[0]}" if self.wins else "nowhere"
        if len(self.wins) == len(self.sizes):
            where = "at every n"
        return (
            f"{self.case}: tighter {where}; at n = {self.sizes[-1]} its excess is "
            f"{self.ratio:.2f} times that of the plain bound and {self.to_yardstick:.2f} times "
            f"the Monte Carlo one; {self.valid.word}"
        )


def _tighter(claim: str, label: str, bounds: Bounds) -> Verdict:
    found = []
    measured = [bounds.of(case, label) for case in bounds.cases]
    for case in (m.case for m in measured if m.applies):
        ours, plain = (bounds.of(case, name) for name in (label, "UCB true size (strong)"))
        better = ours.excess < plain.excess
        # "from n": smaller at that size and at every larger one
        wins = [n for i, n in enumerate(ours.sizes) if better[i:].all() and n >= ours.start]
        ideal = bounds.yardsticks[case.name][-1] - case.reward.mean
        found.append(
            _Tightness(
                case.name,
                label,
                wins,
                ours.validity(),
                ours.sizes,
                float(ours.excess[-1] / plain.excess[-1]),
                float(ours.excess[-1] / ideal),
            )
        )
    verdict = from_cases(
        claim,
        found,
        good=lambda t: bool(t.wins) and t.valid.holds,
        bad=lambda t: not t.wins or bool(t.valid.too_low),
        name=lambda t: ("", t.case),
    )
    ratios = "; ".join(f"{t.ratio:.2f} on {t.case}" for t in found)
    words = f"excess at n = {measured[0].sizes[-1]} relative to the plain bound: {ratios}"
    return replace(verdict, words=f"{verdict.words} ({words}){_aside(measured)}")


def _table(case: Case, bounds: Bounds) -> Table:
    rows = []
    ideal = bounds.yardsticks[case.name][-1] - case.reward.mean
    measured = [m for m in bounds.measured if m.case is case]
    for m in sorted(measured, key=lambda m: m.excess[-1]):
        rows.append(
            (
                WORDS[m.method.name],
                number(float(m.excess[-1])),
                f"{m.excess[-1] / ideal:.2f}",
                f"{m.coverage.min():.3f}",
                "every n" if not m.start else f"n ≥ {m.start}",
            )
        )
    n = measured[0].sizes[-1]
    return Table(
        f"{case.name}: mu·p = {number(case.reward.mean)}",
        ("bound", f"excess at n = {n}", "× Monte Carlo", "lowest coverage", "applies to"),
        tuple(rows),
        f"Coverage from {measured[0].runs} runs per n; the aim is {1 - DELTA:g} wherever the "
        "bound applies.",
    )
