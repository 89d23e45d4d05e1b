"""The panels of figure 4: who plays on the loan markets, with which widths, and what came out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib.cases.loan import LoanPricing
from zib.experiments.contextual_panels import INTEGRATED, NAIVE, ON_MEANS, RIDGE
from zib.experiments.loan_study import Book
from zib.experiments.panels import rounds_to_record
from zib.experiments.record import Context
from zib.sim import Results

HORIZON = 5000  # the paper's
FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
TUNED = (*ON_MEANS, *NAIVE, *INTEGRATED)
OTHER_SEED = 1_000_003  # factors are chosen on rounds that are not shown


class Amount(NamedTuple):
    """How much to play: rounds and runs of the panels, rounds and runs of each pilot."""

    long: int
    replications: int
    pilot: int
    pilots: int


QUICK, PAPER = Amount(20_000, 3, 5000, 1), Amount(50_000, 30, 50_000, 3)


class LoanPanel(NamedTuple):
    """One panel: a market, a horizon, widths as printed or tuned, and the results."""

    book: Book
    market: LoanPricing
    horizon: int
    tuned: bool
    result: Results

    @property
    def name(self) -> str:
        """The panel in words."""
        return f"{self.book.name} T = {self.horizon}" + (" tuned" if self.tuned else "")

    @property
    def title(self) -> str:
        """What stands over it."""
        return f"{self.book.name}, T = {self.horizon}" + (", tuned" if self.tuned else "")

    @property
    def key(self) -> dict[str, object]:
        """What tells this panel from others, as columns of a table."""
        widths = "tuned" if self.tuned else "printed"
        return {"records": self.book.title, "horizon": self.horizon, "widths": widths}

    @property
    def references(self) -> dict[str, NDArray[np.float64]]:
        """No curve but those of policies."""
        return {}


def bound_of(market: LoanPricing) -> float:
    """Return a radius that holds both coefficient vectors, with a tenth to spare."""
    return math.ceil(11.0 * max(market.feature_norms)) / 10.0


def policies(
    market: LoanPricing, horizon: int, factors: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return the policies by label; `factors` multiply the widths of the paper's policies.

    Without factors everything is as printed, and the printed indices play, too.
    """
    known: dict[str, Any] = {"horizon": horizon, "sigma": market.sigma, "ridge": RIDGE}
    model: dict[str, Any] = {"link": market.link, "ridge": RIDGE}
    both = known | model | {"bound": bound_of(market)}
    robust = both | {"magnitude": "huber"}
    scale = dict.fromkeys(TUNED, 1.0) | dict(factors or {})
    printed = {
        "ZI-UCB printed": zib.contextual.ZIUCB(index="printed", **robust),
        "ZI-TS printed": zib.contextual.ZITS(index="printed", **robust),
    }
    out: dict[str, Any] = {
        "ZI-UCB": zib.contextual.ZIUCB(scale=scale["ZI-UCB"], **robust),
        "ZI-TS": zib.contextual.ZITS(scale=scale["ZI-TS"], **robust),
        "naive UCB": zib.contextual.Naive(kind="ucb", scale=scale["naive UCB"], **known),
        "naive TS": zib.contextual.Naive(kind="ts", scale=scale["naive TS"], **known),
        "integrated UCB": zib.contextual.Integrated(
            kind="ucb", scale=scale["integrated UCB"], **both
        ),
        "integrated TS": zib.contextual.Integrated(kind="ts", scale=scale["integrated TS"], **both),
        "Joint-UCB": zib.contextual.JointUCB(**model),
        "Laplace-TS": zib.contextual.LaplaceTS(**model),
    }
    return out if factors is not None else printed | out


def best_factors(context: Context, market: LoanPricing, amount: Amount) -> dict[str, float] | None:
    """Return, for each of the paper's policies, the factor of its width that did best in a pilot.

    None if the user interrupted.
    """
    entrants = {
        f"{label} × {factor:g}": policies(market, amount.pilot, {label: factor})[label]
        for label in TUNED
        for factor in FACTORS
    }
    result = _simulate(
        context, entrants, market, amount.pilot, amount.pilots, context.seed + OTHER_SEED
    )
    if result is None:
        return None
    finals = dict(zip(result.labels, result.mean()[:, -1]))
    return {label: min(FACTORS, key=lambda f: float(finals[f"{label} × {f:g}"])) for label in TUNED}


def _simulate(
    context: Context,
    entrants: Mapping[str, Any],
    market: LoanPricing,
    horizon: int,
    replications: int,
    seed: int,
) -> Results | None:
    with warnings.catch_warnings():
        # an interrupted simulation says so by a warning; here its result says so
        warnings.filterwarnings("ignore", "interrupted: ", UserWarning)
        result = zib.simulate(
            entrants,
            market,
            horizon=horizon,
            replications=replications,
            seed=seed,
            checkpoints=rounds_to_record(horizon),
            workers=context.workers,
            progress=False,
            store=context.store,
        )
    return result if result.complete else None


def run_panels(
    context: Context,
    found: Sequence[Book],
    amount: Amount,
    chosen: dict[str, dict[str, float]],
) -> Iterator[LoanPanel]:
    """Play on each market: T of the paper, a longer one, and the longer one with tuned widths.

    Yields panels as they are finished, and writes the factors of each set of records to `chosen`.
    Stops early, without the unfinished panel, when the user interrupts.
    """
    steps = 4 * len(found)
    done = 0
    for book in found:
        market = book.market(context.seed)
        context.tell(f"{book.name}: tuning", done / steps)
        factors = best_factors(context, market, amount)
        if factors is None:
            return
        chosen[book.name] = factors
        done += 1
        for horizon, widths in ((HORIZON, None), (amount.long, None), (amount.long, factors)):
            context.tell(f"{book.name}, T = {horizon}", done / steps)
            entrants = policies(market, horizon, widths)
            result = _simulate(
                context, entrants, market, horizon, amount.replications, context.seed
            )
            if result is None:
                return
            yield LoanPanel(book, market, horizon, widths is not None, result)
            done += 1
