"""Figure S6: the size tau² of a zero-inflated reward, and how it reacts to mu, p and sigma.

Five panels illustrate a lemma about R = X·Y with X ~ N(mu, sigma²): (i) tau² can exceed sigma² by
any factor; (ii) it can exceed Var(R) by any factor; (iii) its derivatives can be arbitrarily large.
Each part is checked on a grid, literally as printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib import theory
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment
from zib.experiments.record import Setting, Table, Verdict
from zib.report.numbers import number

Array = NDArray[np.float64]
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v")


def tau2(mean: Array, prob: Array, sigma: Array) -> Array:
    """Return tau²."""
    return np.asarray(theory.product_variance_proxy(mean, prob, sigma))


def gradient(mean: Array, prob: Array, sigma: Array) -> tuple[Array, Array]:
    """Return the derivatives of tau² in p and in mu."""
    by_prob, by_mean, _ = theory.product_variance_proxy_gradient(mean, prob, sigma)
    return np.asarray(by_prob), np.asarray(by_mean)


def variance(mean: Array, prob: Array, sigma: Array) -> Array:
    """Return Var(R)."""
    return np.asarray(prob * sigma**2 + prob * (1 - prob) * mean**2)


def tau2_near_one(mean: float, sigma: float, log_gap: float) -> float:
    """Return tau² at p = 1 − exp(−log_gap), also where p is 1 in floating point."""
    from scipy.optimize import minimize_scalar

    log_prob = math.log1p(-math.exp(-log_gap)) if log_gap < 700 else 0.0
    prob = -math.expm1(-log_gap)

    def negative(log_s: float, sign: float) -> float:
        s = sign * math.exp(log_s)
        grown = np.logaddexp(-log_gap, log_prob + s * mean + s * s * sigma * sigma / 2)
        return -2.0 * float(grown - s * mean * prob) / (s * s)

    values = [sigma * sigma]
    for sign in (-1.0, 1.0):
        grid = np.linspace(math.log(1e-3 / mean), math.log(1e4 / mean + 1e3 * log_gap / mean), 400)
        at = int(np.argmin([negative(float(x), sign) for x in grid]))
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, grid.size - 1)])
        best = minimize_scalar(negative, bounds=(low, high), args=(sign,), method="bounded")
        values.append(-float(best.fun))
    return max(values)


class Curve(NamedTuple):
    """One curve of a panel."""

    label: str
    x: Array
    y: Array


class Part(NamedTuple):
    """One panel."""

    letter: str
    title: str
    xlabel: str
    ylabel: str
    curves: list[Curve]
    xlog: bool
    ylog: str  # "", "log" or "symlog"
    legend: tuple[float, float]


class Lemma(NamedTuple):
    """The lemma checked on grids: a verdict on each part, and the extreme values found."""

    verdicts: tuple[Verdict, ...]
    extremes: tuple[tuple[str, ...], ...]


class FigureS6(Experiment[Lemma]):
    """The five panels, and the lemma they illustrate."""

    order = 12
    title = "Figure S6 a–e: the size tau² of the reward"
    about = (
        "tau² is the smallest number with log E exp(s(R − mu·p)) ≤ s² tau²/2 for all s: the size a "
        "plain confidence bound for R has to know."
    )
    weight = 0.6
    random = False

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting("law of X", "N(mu, sigma²)", "paper"),
            Setting("a", "sigma² = 1", "paper"),
            Setting("b", "mu = 100", "paper"),
            Setting("c", "sigma² = 1", "paper"),
            Setting("d, e", "mu = 100 and mu = 0.5", "paper"),
            Setting("grids of mu, p and sigma", "see the axes", "ours"),
            Setting(
                "derivatives",
                "exact (envelope theorem); the paper differentiates numerically",
                "ours",
            ),
        )

    def measure(self) -> Lemma:
        """Check the lemma."""
        self.context.tell("checking the lemma", 0.4)
        return check_lemma()

    def tables(self, found: Lemma) -> Iterable[Table]:
        """Return the extreme values."""
        head = ("quantity", "where", "smallest", "largest")
        yield Table("Extreme values found on the grids", head, found.extremes)

    def claims(self, found: Lemma) -> Iterable[Verdict]:
        """Return a verdict on each part of the lemma."""
        return found.verdicts

    def figures(self, found: Lemma) -> Iterable[Drawn]:
        """Draw the five panels."""
        import pandas as pd
        from matplotlib.figure import Figure

        rows = []
        fig = Figure(figsize=(11.6, 7.8))
        spec = fig.add_gridspec(
            2, 6, left=0.07, right=0.985, top=0.95, bottom=0.1, hspace=0.42, wspace=1.35
        )
        places = [spec[0, 0:3], spec[0, 3:6], spec[1, 0:2], spec[1, 2:4], spec[1, 4:6]]
        for part, place in zip(parts(), places):
            ax = fig.add_subplot(place)
            for i, curve in enumerate(part.curves):
                ax.plot(
                    curve.x,
                    curve.y,
                    label=curve.label,
                    color=COLORS[i],
                    marker=MARKERS[i],
                    markevery=(3 * i, max(len(curve.x) // 6, 1)),
                    markersize=5,
                    linewidth=1.8,
                )
                rows += [(part.letter, curve.label, x, y) for x, y in zip(curve.x, curve.y)]
            if part.xlog:
                ax.set_xscale("log")
            if part.ylog == "symlog":
                ax.set_yscale("symlog", linthresh=1.0)
            elif part.ylog:
                ax.set_yscale(part.ylog)
            ax.minorticks_off()
            ax.margins(y=0.08)
            ax.set_title(f"{part.letter}: {part.title}")
            ax.set_xlabel(part.xlabel)
            ax.set_ylabel(part.ylabel)
            ax.legend(frameon=False, fontsize=9, loc=part.legend)
            if not part.ylog:
                ax.set_ylim(top=1.25 * max(float(curve.y.max()) for curve in part.curves))
        numbers = pd.DataFrame(rows, columns=["panel", "curve", "x", "y"])
        yield Drawn(
            fig,
            numbers,
            "The five panels of the paper. Vertical axes of c and d are symmetric-logarithmic, so "
            "that large values of both signs can be seen.",
            "tau² against mu and p, its ratio to the variance, and its derivatives.",
        )


def parts() -> list[Part]:
    """Compute the five panels."""
    mus = np.geomspace(0.1, 1000, 81)
    probs = np.concatenate(
        [
            np.geomspace(1e-4, 0.05, 40),
            np.linspace(0.06, 0.94, 60),
            1 - np.geomspace(0.05, 1e-4, 40),
        ]
    )
    sigmas = np.geomspace(1e-2, 1e2, 81)
    ones = np.ones_like
    a = [
        Curve(f"p = {p:g}", mus, tau2(mus, p * ones(mus), ones(mus)))
        for p in (0.01, 0.1, 0.5, 0.9, 0.99)
    ]
    hundred = 100.0 * ones(probs)
    b = []
    for sigma in (0.1, 1.0, 10.0):
        s = sigma * ones(probs)
        ratio = tau2(hundred, probs, s) / variance(hundred, probs, s)
        b.append(Curve(f"sigma = {sigma:g}", probs, ratio))
    c = [
        Curve(f"mu = {mu:g}", probs, gradient(mu * ones(probs), probs, ones(probs))[0])
        for mu in (0.1, 1.0, 3.0, 10.0)
    ]
    d, e = [], []
    for p in (0.1, 0.5, 0.9, 0.99):
        q = p * ones(sigmas)
        d.append(Curve(f"p = {p:g}", sigmas**2, gradient(100.0 * ones(sigmas), q, sigmas)[0]))
        e.append(Curve(f"p = {p:g}", sigmas**2, gradient(0.5 * ones(sigmas), q, sigmas)[1]))
    return [
        Part("a", "(i) tau², sigma² = 1", "mu", "tau²", a, True, "log", (0.02, 0.62)),
        Part("b", "(ii) tau²/Var(R), mu = 100", "p", "tau²/Var(R)", b, False, "log", (0.38, 0.72)),
        Part("c", "(iii a) sigma² = 1", "p", "∂tau²/∂p", c, False, "symlog", (0.62, 0.7)),
        Part("d", "(iii b) mu = 100", "sigma²", "∂tau²/∂p", d, True, "symlog", (0.62, 0.55)),
        Part("e", "(iii c) mu = 0.5", "sigma²", "∂tau²/∂mu", e, True, "", (0.62, 0.72)),
    ]


def check_lemma() -> Lemma:
    """Check each part of the lemma on grids."""
    first, rows = _part_i()
    checks = [first, _part_ii()]
    third, more = _part_iii()
    return Lemma((*checks, *third), (*rows, *more))


def _part_i() -> tuple[Verdict, list[tuple[str, ...]]]:
    claim = "(i) For any p, sigma² and M there is a mu* beyond which tau² > M·sigma²"
    mus = np.geomspace(0.1, 1e6, 300)
    evidence: list[str] = []
    rows: list[tuple[str, ...]] = []
    ok = True
    for p in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999):
        ratio = tau2(mus, np.full_like(mus, p), np.ones_like(mus))
        stars = []
        for factor in (10.0, 1e3, 1e6):
            beyond = [mu for i, mu in enumerate(mus) if (ratio[i:] > factor).all()]
            ok = ok and bool(beyond)
            stars.append(f"{factor:g} from mu = {number(float(beyond[0]))}" if beyond else "never")
        evidence.append(f"p = {p:g}: tau²/sigma² exceeds {', '.join(stars)}")
        rows.append(
            (
                "tau²/sigma²",
                f"p = {p:g}, mu from 0.1 to 1e6",
                number(float(ratio.min())),
                number(float(ratio.max())),
            )
        )
    words = "holds for every p and M tried" if ok else "does not hold for some p or M"
    return Verdict(claim, "holds" if ok else "fails", words, tuple(evidence)), rows


def _part_ii() -> Verdict:
    claim = (
        "(ii) For any M there are sigma*, p* and mu* with tau² > M·Var(R) for all mu > mu*, "
        "sigma < sigma* and p in [p*, 1)"
    )
    evidence = []
    best, at = 0.0, ""
    for mu in (1.0, 10.0, 100.0, 1000.0):
        gaps = np.geomspace(0.5, 1e-12, 200)
        prob = 1.0 - gaps
        ratio = tau2(np.full_like(prob, mu), prob, np.ones_like(prob)) / variance(
            np.full_like(prob, mu), prob, np.ones_like(prob)
        )
        i = int(np.argmax(ratio))
        if ratio[i] > best:
            best, at = float(ratio[i]), f"mu/sigma = {mu:g}, 1 − p = {gaps[i]:.1e}"
        evidence.append(
            f"mu/sigma = {mu:g}: the ratio is largest at 1 − p = {gaps[i]:.1e}, "
            f"{number(float(ratio[i]))}"
        )
    limits = []
    for mu in (10.0, 100.0, 1000.0):
        log_gap = 50.0 * mu * mu
        limit = tau2_near_one(mu, 1.0, log_gap) / 1.0
        limits.append(limit)
        evidence.append(f"mu/sigma = {mu:g}: at 1 − p = exp(−{log_gap:g}) the ratio is {limit:.3f}")
    returns = max(limits) < 1.5
    if best <= 10:
        return Verdict(claim, "fails", "does not hold", tuple(evidence))
    if not returns:
        return Verdict(claim, "holds", "holds", tuple(evidence))
    words = (
        f"holds only away from p = 1: the ratio reaches {number(best)} ({at}), but for fixed mu "
        "and sigma it falls back to 1 as p tends to 1, so no p* works up to 1"
    )
    return Verdict(claim, "partly", words, tuple(evidence))


def _part_iii() -> tuple[tuple[Verdict, ...], list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    near_one = 1.0 - np.geomspace(0.2, 1e-8, 120)
    near_zero = np.geomspace(1e-8, 0.2, 120)

    def grid(mus: Array, sigmas: Array, probs: Array) -> tuple[Array, Array, Array]:
        m, s, p = np.meshgrid(mus, sigmas, probs, indexing="ij")
        return m.ravel(), p.ravel(), s.ravel()

    # (iii a): sigma fixed, all small mu
    by_p = gradient(*grid(np.geomspace(1e-3, 1.0, 12), np.ones(1), near_one))[0]
    rows.append(_extremes("∂tau²/∂p", "sigma = 1, mu from 0.001 to 1, p from 0.8 to 1", by_p))
    tiny = gradient(*grid(np.full(1, 1e-3), np.ones(1), near_one))[0]
    a = _large_everywhere(
        "(iii a) For any sigma and M, ∂tau²/∂p > M for all small mu and all p near 1",
        by_p,
        [
            f"over small mu and p near 1 the derivative lies between {number(float(by_p.min()))} "
            f"and {number(float(by_p.max()))}",
            f"at mu = 0.001 it lies between {number(float(tiny.min()))} and "
            f"{number(float(tiny.max()))}: tau² is nearly sigma², whatever p is",
        ],
        "the derivative vanishes with mu",
    )
    # (iii b): mu fixed, all small sigma
    small = np.geomspace(1e-4, 1e-2, 6)
    one = gradient(*grid(np.ones(1), small, near_one))[0]
    zero = gradient(*grid(np.ones(1), small, near_zero))[0]
    rows.append(_extremes("∂tau²/∂p", "mu = 1, small sigma, p from 0.8 to 1", one))
    rows.append(_extremes("∂tau²/∂p", "mu = 1, small sigma, p from 0 to 0.2", zero))
    b = _large_everywhere(
        "(iii b) For any mu and M, ∂tau²/∂p > M for all small sigma and all p near 1",
        one,
        [
            f"p near 1: between {number(float(one.min()))} and {number(float(one.max()))}",
            f"p near 0: between {number(float(zero.min()))} and {number(float(zero.max()))}",
        ],
        "near p = 1 the derivative is large but negative"
        + ("; it is large and positive near p = 0" if zero.max() > 1e3 else ""),
    )
    # (iii c): mu fixed, derivative in mu
    wide = np.concatenate([near_zero, np.linspace(0.2, 0.8, 41), near_one])
    by_mu = gradient(*grid(np.full(1, 0.5), np.geomspace(1e-4, 1e2, 25), wide))[1]
    rows.append(_extremes("∂tau²/∂mu", "mu = 0.5, sigma from 1e-4 to 100, all p", by_mu))
    c = _large_everywhere(
        "(iii c) For any mu and M, ∂tau²/∂mu > M for all small sigma and all p near 1",
        by_mu,
        [
            f"at mu = 0.5, over all p and sigma, the derivative lies between "
            f"{number(float(by_mu.min()))} and {number(float(by_mu.max()))}",
            "as sigma tends to 0, tau² tends to mu² times a number of at most 1/4, so the "
            "derivative does not exceed mu/2",
        ],
        "the derivative stays bounded",
    )
    return (a, b, c), rows


def _extremes(what: str, where: str, values: Array) -> tuple[str, ...]:
    return what, where, number(float(values.min())), number(float(values.max()))


def _large_everywhere(claim: str, values: Array, evidence: list[str], otherwise: str) -> Verdict:
    """Judge "larger than any M everywhere": the smallest value on the grid has to be large."""
    if values.min() > 1e3:
        return Verdict(claim, "holds", "holds on the grid", tuple(evidence))
    if values.max() > 1e3:
        return Verdict(claim, "partly", f"holds only in places: {otherwise}", tuple(evidence))
    return Verdict(claim, "fails", f"does not hold as printed: {otherwise}", tuple(evidence))
