"""Figure S5: the fitted profit model against λ, the mean of the noise it is made with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from zib.cases.loan.fit import design, fit_profit
from zib.cases.loan.records import LoanRecords
from zib.core.rng import Role, stream
from zib.experiments import loan_study
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment
from zib.experiments.record import Setting, Table, Verdict

GRID = tuple(float(x) for x in np.round(np.linspace(0.05, 2.0, 40), 4))
CLOSE = 0.05  # "approximately": within this
LEVEL = 0.05


class Point(NamedTuple):
    """The fit at one λ: β̂₁, the ℓ₁ norm of the effects of covariates, and a test that all are 0."""

    lam: float
    price: float
    norm: float
    p_value: float


def points(records: LoanRecords, seed: int) -> list[Point]:
    """Fit the profit model at each λ, with noise drawn afresh."""
    from scipy.stats import f as f_law

    x = design(records)
    n, d = x.shape
    inverse = np.linalg.inv(x.T @ x)
    out = []
    for i, lam in enumerate(GRID):
        rng = stream(seed, Role.INSTANCE, 2, i)
        beta = fit_profit(records, rng, lam=lam).beta
        # the same numbers again, for the residuals
        again = stream(seed, Role.INSTANCE, 2, i).standard_exponential(n)
        rest = records.price + lam * (again - 1.0) - x @ beta
        variance = float(rest @ rest) / (n - d)
        effects = beta[2:]
        wald = effects @ np.linalg.solve(inverse[2:, 2:], effects) / (variance * effects.size)
        p_value = float(f_law.sf(wald, effects.size, n - d))
        out.append(Point(lam, float(beta[0]), float(np.abs(effects).sum()), p_value))
    return out


class FigureS5(Experiment[list[Point]]):
    """The profit model of the synthetic records at forty values of λ."""

    order = 10
    title = "Figure S5: the profit model against λ"
    about = (
        "The paper makes profits up as X = A + Exp(λ) − λ and regresses them on price and "
        "covariates."
    )
    weight = 0.4

    @cached_property
    def book(self) -> loan_study.Book:
        """The records."""
        return loan_study.synthetic_book(self.context.seed)

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            *loan_study.record_settings([self.book]),
            Setting("λ", f"{len(GRID)} values in (0, 2]; noise drawn afresh for each", "paper"),
            Setting("model", "X = (a, 1, x)β, least squares on all records", "paper"),
            Setting(
                "scale",
                "price in $1000; covariates have standard deviation 1, so each effect is in $1000 "
                "per standard deviation (in other units the norm could be any number)",
                "ours",
            ),
            Setting("“approximately”", f"within {CLOSE:g}", "ours"),
        )

    def measure(self) -> list[Point]:
        """Fit the model at each λ."""
        self.context.tell("fitting", 0.3)
        return points(self.book.records, self.context.seed)

    def tables(self, found: list[Point]) -> Iterable[Table]:
        """Return the fits at a few λ."""
        shown = [p for p in found if round(p.lam * 20) in (1, 10, 20, 30, 40)]
        yield Table(
            f"{self.book.title}: fits",
            ("λ", "β̂₁", "1 + ‖β̂ of covariates‖₁", "p-value: no covariate matters"),
            tuple(
                (f"{p.lam:g}", f"{p.price:.4f}", f"{1 + p.norm:.4f}", f"{p.p_value:.3f}")
                for p in shown
            ),
        )

    def claims(self, found: list[Point]) -> Iterable[Verdict]:
        """Judge what the paper reads from the figure."""
        return approximately_one(found), context_matters(found)

    def notes(self, found: list[Point]) -> Iterable[str]:
        """Say what the figure can show at all."""
        return (
            *loan_study.record_notes([self.book])[:1],
            "X is made from the price and noise that knows nothing of the covariates. So β = (1, "
            "0, 0, …) is exact whatever the records and λ are, and both curves show sampling error "
            "only, which grows like λ/√n. The figure cannot tell a reasonable λ from another one.",
        )

    def figures(self, found: list[Point]) -> Iterable[Drawn]:
        """Draw both curves, and what sampling error alone gives."""
        import pandas as pd
        from matplotlib.figure import Figure

        error = error_alone(self.book.records)
        lam = np.array([p.lam for p in found])
        price = np.array([p.price for p in found])
        norm = 1.0 + np.array([p.norm for p in found])
        fig = Figure(figsize=(6.4, 3.9))
        ax = fig.subplots()
        ax.plot(
            lam,
            1.0 + error * lam,
            color="#999999",
            linestyle=(0, (4, 3)),
            label="sampling error alone, on average",
        )
        ax.plot(lam, price, color="#CC3311", marker="o", markersize=3.5, label="β̂₁ (price)")
        ax.plot(
            lam,
            norm,
            color="#0072B2",
            marker="s",
            markersize=3.5,
            label="1 + ‖β̂ of covariates‖₁",
        )
        ax.set_ylim(0.9, 1.1)
        ax.set_xlim(0.0, 2.05)
        ax.set_xlabel("λ")
        ax.set_ylabel("estimate")
        ax.set_title(self.book.title)
        ax.legend(frameon=False, loc="lower left")
        fig.subplots_adjust(left=0.12, right=0.97, top=0.91, bottom=0.17)
        numbers = pd.DataFrame(
            {
                "lambda": lam,
                "price": price,
                "one_plus_norm": norm,
                "error_alone": 1.0 + error * lam,
                "p_value": [p.p_value for p in found],
            }
        )
        yield Drawn(
            fig,
            numbers,
            "As in the paper: β̂₁ (red) and one plus the ℓ₁ norm of the effects of the covariates "
            f"(blue), on the {self.book.title}. Grey: what sampling error alone gives for the blue "
            "curve on average.",
            "Two curves near one for all λ.",
        )


def approximately_one(found: Sequence[Point]) -> Verdict:
    """Judge whether both curves stay near one."""
    worst = max(found, key=lambda p: abs(p.price - 1.0))
    largest = max(found, key=lambda p: p.norm)
    holds = abs(worst.price - 1.0) <= CLOSE and largest.norm <= CLOSE
    return Verdict(
        "For every λ in (0, 2], β̂₁ ≈ 1 and the effects of the covariates are ≈ 0",
        "holds" if holds else "fails",
        ("holds" if holds else "does not hold")
        + f": β̂₁ is off by at most {abs(worst.price - 1):.4f}, the norm is at most "
        f"{largest.norm:.4f}",
        (
            f"β̂₁ = {worst.price:.4f} at λ = {worst.lam:g}",
            f"‖·‖₁ = {largest.norm:.4f} at λ = {largest.lam:g}",
        ),
    )


def context_matters(found: Sequence[Point]) -> Verdict:
    """Judge whether the fits show an influence of the covariates on the profit."""
    hits = [p for p in found if p.p_value < LEVEL / len(found)]
    rejected = sum(p.p_value < LEVEL for p in found)
    return Verdict(
        "The context does have some influence on the profit",
        "holds" if hits else "fails",
        f"an F test says so at {len(hits)} of {len(found)} values of λ"
        if hits
        else "does not hold: nothing but sampling error; the profit is made without the context",
        (
            f"F tests at level {LEVEL:g} reject at {rejected} of {len(found)} values of λ "
            f"({LEVEL * len(found):g} expected if there is no influence), after Bonferroni's "
            f"correction at {len(hits)}",
        ),
    )


def error_alone(records: LoanRecords) -> float:
    """Return E‖β̂ of covariates‖₁ at λ = 1 if no covariate matters."""
    x = design(records)
    variances = np.diag(np.linalg.inv(x.T @ x))[2:]
    return float(np.sqrt(2.0 / math.pi * variances).sum())
