"""The study of figure 3 for five links: the paper says that they look alike and omits them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from zib.contextual import StandardLink, kappa
from zib.env import RandomContextual
from zib.env.contextual import LINK_NAMES
from zib.experiments.contextual_study import (
    BETTER,
    NAIVE,
    ON_MEANS,
    PRINTED,
    VERSIONS,
    ContextualStudy,
    environment_id,
    few_replications,
    targets,
)
from zib.experiments.draw import side_by_side
from zib.experiments.harness import Panel, Played, Scaled
from zib.experiments.judge import (
    Comparison,
    compare,
    compare_runs,
    final_regrets,
    from_cases,
    grows,
    lower,
    worst_run,
)
from zib.experiments.record import Table, Verdict
from zib.report.numbers import listing

SIMILAR = 1.5  # "quite similar": regret within this factor of that with the probit link


class Links(ContextualStudy):
    """Five links at the paper's horizon."""

    order = 8
    title = "Five links: contextual regret, s = 7, Gaussian noise"
    about = "The same instances under each link h of the probability; the policies know it."
    weight = 3.0
    sparsities = (7,)
    noises = ("gaussian",)
    link = "as named"
    replications = Scaled(quick=2, paper=25)

    def panels(self) -> list[Panel]:
        """Return a panel per link."""
        return [
            self.panel(environment_id("gaussian", 7, link), link, f"{link} link")
            for link in LINK_NAMES
        ]

    def policies(self, maker: RandomContextual) -> dict[str, Any]:
        """Return who plays: all but the integrated methods."""
        everybody = super().policies(maker)
        return {label: everybody[label] for label in (*PRINTED, *ON_MEANS, *NAIVE, *BETTER)}

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return final regrets, a column per link."""
        return [side_by_side("Gaussian noise, s = 7", found, [panel.name for panel in found])]

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge whether the links give similar results, and our targets on each of them."""
        named = {panel.name: panel.result for panel in found}
        return (
            same_order(found),
            same_size(found),
            *(
                grows(
                    f"The zero-inflated UCB and TS are sublinear for every link: {version}",
                    ((name, result, label) for label in labels for name, result in named.items()),
                    exponents=True,
                )
                for version, labels in VERSIONS.items()
            ),
            *targets(named, self.conditions()),
        )

    def notes(self, found: list[Played]) -> Iterable[str]:
        """Say what the links change."""
        slopes = [f"{kappa(StandardLink(name=name), 1.0):.2f} ({name})" for name in LINK_NAMES]
        yield from few_replications(self.replications)
        yield (
            "With the log link positive predictors would give every action p = 1, so θ is turned "
            "to −θ there: features that raise the magnitude lower the probability, and many "
            "actions have p near 1. This is our choice. The printed index, a product of linear "
            "predictors, then prefers small magnitudes, since the predictor of the probability is "
            "negative. With the other four links the task differs in the size of p and in the "
            "slope of the link only. The smallest slope κ is in the paper's radius for the "
            f"probability, which is proportional to 1/κ: κ = {listing(slopes)}."
        )


def same_order(found: Sequence[Played]) -> Verdict:
    """Judge whether the paper's methods rank under each link as they do under the probit."""
    first, *others = found
    cases = []
    for pair in itertools.combinations((*PRINTED, *ON_MEANS, *NAIVE), 2):
        known = compare(first.name, first.result, *pair)
        if known.higher:
            pair = pair[::-1]
        if known.higher or known.lower:
            cases += [compare(panel.name, panel.result, *pair) for panel in others]
    return lower(
        "Results for the various links are quite similar: the paper's methods rank as under the "
        "probit (pairs whose order is clear there)",
        cases,
        lambda c: (f"{c.first} below {c.second}", c.panel),
    )


class Similar(NamedTuple):
    """Regret of one policy under a link against that under the probit, from both sides."""

    above: Comparison  # against SIMILAR times
    beneath: Comparison  # against 1/SIMILAR times

    @property
    def n(self) -> int:
        """Number of replications."""
        return self.above.n

    def __str__(self) -> str:
        return f"{self.above}; against 1/{SIMILAR:g} times: {self.beneath.decision}"


def same_size(found: Sequence[Played]) -> Verdict:
    """Judge whether each method's regret is close to what it is under the probit."""
    first, *others = found
    cases = [_similar(panel, first, label) for panel in others for label in panel.result.labels]
    verdict = from_cases(
        f"Results for the various links are quite similar: regret within a factor {SIMILAR:g} of "
        "that under the probit",
        cases,
        good=lambda c: c.above.lower and c.beneath.higher,
        bad=lambda c: c.above.higher or c.beneath.lower,
        name=lambda c: (c.above.first, c.above.panel),
    )
    spans = [
        f"{link} {min(values):.2f} to {max(values):.2f}" for link, values in _by_link(cases).items()
    ]
    if not spans:
        return verdict
    return replace(verdict, words=f"{verdict.words} (times the probit: {', '.join(spans)})")


def _similar(panel: Played, first: Played, label: str) -> Similar:
    runs = (final_regrets(panel.result, label), final_regrets(first.result, label))
    worst = max(worst_run(panel.result), worst_run(first.result))
    itself = f"itself under the {first.name}"
    return Similar(
        *(
            compare_runs(panel.name, label, itself, runs, worst, factor)
            for factor in (SIMILAR, 1 / SIMILAR)
        )
    )


def _by_link(cases: Sequence[Similar]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for case in cases:
        out.setdefault(case.above.panel, []).append(case.above.ratio)
    return out
