"""Figure 4: regret on loan markets fitted to records, price classes as actions."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from zib import theory
from zib.contextual import StandardLink, kappa
from zib.experiments.contextual_panels import GROUPS, RIDGE
from zib.experiments.judge import number
from zib.experiments.loan_claims import verdicts
from zib.experiments.loan_panels import (
    FACTORS,
    HORIZON,
    PAPER,
    QUICK,
    TUNED,
    Amount,
    LoanPanel,
    bound_of,
    run_panels,
)
from zib.experiments.loan_study import (
    LAMBDA,
    Book,
    books,
    class_table,
    power_note,
    record_notes,
    record_settings,
)
from zib.experiments.record import Context, Record, Setting, Table
from zib.experiments.study import Planned, assemble
from zib.experiments.study_figures import Look, detailed_table, pictures

ID = "fig4"
TITLE = "Figure 4: regret on loan markets"
WEIGHT = 4.0
CAPTION = (
    "Mean cumulative regret with 95 % bands; profits in the unit of the records ($1000, or 100 "
    "rand). Left: the paper's horizon. Middle: a longer one. Right: the longer one with every "
    "width of the paper's policies multiplied by the factor that did best in a pilot. Green and "
    "blue: the paper's policies, dashed as printed, solid on the scale of means. Orange and pink: "
    "its baselines. Purple: ours, nothing tuned."
)
LOOK = Look(GROUPS, CAPTION, right=0.22)


def run(context: Context) -> Record:
    """Play on the synthetic market, and on the open experiment where its file is there."""
    amount = QUICK if context.quick else PAPER
    found = books(context)
    about = (
        "A customer arrives, one of five price classes is offered; the reward is the profit if the "
        "offer is accepted and zero if not. The markets are fitted to records."
    )
    plan = Planned(context, ID, TITLE, about, 3 * len(found), time.perf_counter())
    factors: dict[str, dict[str, float]] = {}
    panels = list(run_panels(context, found, amount, factors))
    if not panels:
        raise KeyboardInterrupt
    first = {panel.book.name: panel for panel in panels if panel.horizon == HORIZON}
    return assemble(
        plan,
        panels,
        settings=settings(context, found, amount, panels),
        draw=lambda origin: pictures(panels, context.folder, ID, origin, log=False, look=LOOK),
        tables=(
            *(class_table(panel.book, panel.market) for panel in first.values()),
            *(detailed_table(panel, "ZI-UCB", "× ZI-UCB") for panel in panels),
            factor_table(factors),
        ),
        verdicts=verdicts(panels),
        notes=[
            *record_notes(found),
            *(power_note(panel.book, panel.market, HORIZON) for panel in first.values()),
            *(why_widths_matter(panel) for panel in first.values()),
            *(why_printed_index_fails(panel) for panel in first.values()),
            *(note for panel in first.values() for note in dearest_is_best(panel)),
        ],
    )


def factor_table(factors: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the factors that did best in the pilots."""
    at_the_end = any(min(FACTORS) in chosen.values() for chosen in factors.values())
    return Table(
        "Factors of the widths that did best in a pilot",
        ("policy", *factors),
        tuple((label, *(f"{chosen[label]:g}" for chosen in factors.values())) for label in TUNED),
        f"Out of {', '.join(f'{f:g}' for f in FACTORS)}; on rounds that are not shown."
        + (" With the smallest factor a policy hardly explores at all." if at_the_end else ""),
    )


def why_widths_matter(panel: LoanPanel) -> str:
    """Return what the printed radii amount to on this market."""
    market, horizon = panel.market, panel.horizon
    d, q = market.n_features
    slope = kappa(StandardLink(name=market.link), bound_of(market))

    def radius(dim: int, sigma: float, steep: float) -> float:
        return float(
            theory.contextual_radius(
                horizon,
                dim,
                1.0 / horizon,
                ridge=RIDGE,
                sigma=sigma,
                kappa=steep,
                version="printed",
            )
        )

    spread = math.sqrt(24.0 * d) * math.log(horizon) / market.n_arms
    return (
        f"{panel.book.title}: the bound on the norms is {bound_of(market):g}, so κ = "
        f"{slope:.3f} and the printed radius of the probability is "
        f"{radius(q, 1.0, slope):.0f} standard widths, while a standard error is at most half a "
        f"width. Until a width falls below {1 / radius(q, 1.0, slope):.4f} the upper bound of "
        "every probability is 1 and ZI-UCB offers whatever could bring most. Thompson sampling "
        f"draws with {spread:.0f} times the standard width: the factor 1/K in the spread helps "
        f"with the paper's 100 actions, not with {market.n_arms}. The right panel shows the same "
        "policies without that handicap."
    )


def why_printed_index_fails(panel: LoanPanel) -> str:
    """Return how often the linear predictor of the acceptance is negative."""
    market = panel.market
    eta = market.theta[1] + market.contexts @ market.theta[2:]
    prices = market.summary().price
    share = float(np.mean(eta[:, None] + market.theta[0] * prices < 0.0))
    return (
        f"{panel.book.title}: {100 * share:.0f} % of all customers and classes are accepted with "
        "probability below one half, so their linear predictor is negative. The printed index is "
        "the product of two linear predictors, and a larger profit then means a lower index."
    )


def dearest_is_best(panel: LoanPanel) -> list[str]:
    """Return a warning where the class that brings most if accepted is best anyway."""
    found = panel.market.summary()
    if int(found.mean.argmax()) != int(found.price.argmax()):
        return []
    share = float(found.best[found.price.argmax()])
    return [
        f"{panel.book.title}: the dearest class is best for {100 * share:.0f} % of the customers. "
        "A policy whose bounds are so wide that it offers the dearest class whatever it sees, and "
        "a linear model that rises in the price, both look good here for no merit of their own."
    ]


def settings(
    context: Context, found: Sequence[Book], amount: Amount, panels: Sequence[LoanPanel]
) -> tuple[Setting, ...]:
    """Return the settings of the figure."""
    markets = {panel.book.name: panel.market for panel in panels}
    bounds = ", ".join(f"{bound_of(m):g} ({name})" for name, m in markets.items())
    sizes = ", ".join(f"{number(m.sigma)} ({name})" for name, m in markets.items())
    return (
        *record_settings(found),
        Setting(
            "price classes",
            "cut at the .25, .75, .915 and .9875 quantiles of the price",
            "paper",
        ),
        *(
            (Setting("price classes of the experiment", "fifths of the offered rates", "ours"),)
            if len(found) > 1
            else ()
        ),
        Setting("acceptance", "h((a, 1, b(x))θ), logistic, b(x) = x, maximum likelihood", "paper"),
        Setting(
            "profit",
            f"(a, 1, b(x))β by least squares on a + Exp(λ) − λ, λ = {LAMBDA:g}; "
            "on the interest of those who took a loan where the records have it",
            "paper",
        ),
        Setting(
            "each round",
            "a customer from the records, a price from those of the class (uniform between 65 "
            "quantiles), Y and X",
            "paper",
        ),
        Setting(
            "noise of the profit online",
            "centred exponential as in the fit (the text asks for noise, the formula has none)",
            "fix",
        ),
        Setting(
            "features",
            "(mean price of the class over the standard deviation of all prices, 1, b(x)) for "
            "both parts; the drawn price is not known beforehand",
            "ours",
        ),
        Setting("horizon", f"T = {HORIZON}", "paper"),
        Setting("longer horizon", f"T = {amount.long}", "ours"),
        Setting("replications", f"N = {amount.replications} (the paper does not say)", "ours"),
        Setting("radii and spread", "δ = 1/T, those of figure 3", "paper"),
        Setting(
            "norm of the coefficients",
            f"at most {bounds}, told to the policies; with the paper's 1 the estimates would be "
            "held away from the truth",
            "fix",
        ),
        Setting("σ told to the paper's policies", f"that of the noise: {sizes}", "ours"),
        Setting("ridge and random rounds", f"λ = {RIDGE:g}; τ = 50", "ours"),
        Setting("profit model of ZI-UCB and ZI-TS", "Huber regression", "paper"),
        Setting(
            "profit model of the others",
            "ridge (Joint-UCB, Laplace-TS); the naive and the integrated model are least squares",
            "ours",
        ),
        Setting(
            "ZI-UCB, ZI-TS",
            "on the scale of means; “printed”: products of linear predictors",
            "fix",
        ),
        Setting(
            "tuned widths",
            f"per policy the best of the factors {', '.join(f'{f:g}' for f in FACTORS)} over "
            f"{amount.pilots} pilot runs of {amount.pilot} rounds with other seeds",
            "ours",
        ),
        Setting("pairing", "all policies of a replication meet the same customers", "ours"),
        Setting("seed", str(context.seed), "ours"),
    )
