"""The study of figure 3 for five links: the paper says that they look alike and omits them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zib.contextual import StandardLink, kappa
from zib.env import RandomContextual
from zib.env.contextual_draws import LINK_NAMES
from zib.experiments.contextual_claims import VERSIONS, targets
from zib.experiments.contextual_notes import few_replications
from zib.experiments.contextual_panels import (
    BETTER,
    FEW,
    HORIZON,
    NAIVE,
    ON_MEANS,
    PRINTED,
    REPLICATIONS,
    ContextualPanel,
    environment_id,
    policies,
)
from zib.experiments.contextual_study import LOOK, settings
from zib.experiments.judge import (
    Ratio,
    compare,
    final_regrets,
    from_cases,
    grows,
    listing,
    ratio_of_means,
)
from zib.experiments.panels import play
from zib.experiments.record import Context, Record, Verdict
from zib.experiments.study import Planned, assemble
from zib.experiments.study_figures import pictures, side_by_side

ID = "links"
TITLE = "Five links: contextual regret, s = 7, Gaussian noise"
WEIGHT = 3.0
PLAYING = (*PRINTED, *ON_MEANS, *NAIVE, *BETTER)
SIMILAR = 1.5  # "quite similar": regret within this factor of that with the probit link


def run(context: Context) -> Record:
    """Play five links at the paper's horizon."""
    horizon, replications = HORIZON, FEW - 1 if context.quick else REPLICATIONS
    ids = [environment_id("gaussian", 7, link) for link in LINK_NAMES]
    about = "The same instances under each link h of the probability; the policies know it."
    plan = Planned(context, ID, TITLE, about, len(ids), time.perf_counter())
    panels = [
        ContextualPanel(maker, maker.link, f"{maker.link} link", result)
        for maker, result in play(context, ids, _policies, horizon, replications)
    ]
    if not panels:
        raise KeyboardInterrupt
    return assemble(
        plan,
        panels,
        settings=settings(
            context,
            horizon,
            replications,
            sparsity="7",
            link="as named",
            link_from="ours",
            noises=("gaussian",),
        ),
        draw=lambda origin: pictures(panels, context.folder, ID, origin, log=False, look=LOOK),
        tables=[side_by_side("Gaussian noise, s = 7", panels, [p.name for p in panels])],
        verdicts=verdicts(panels),
        notes=[*([few_replications(replications)] if replications < REPLICATIONS else []), _note()],
    )


def _note() -> str:
    slopes = [f"{kappa(StandardLink(name=name), 1.0):.2f} ({name})" for name in LINK_NAMES]
    return (
        "With the log link positive predictors would give every action p = 1, so θ is turned to −θ "
        "there: features that raise the magnitude lower the probability, and many actions have p "
        "near 1. This is our choice. The printed index, a product of linear predictors, then "
        "prefers small magnitudes, since the predictor of the probability is negative. With the "
        "other four links the task differs in the size of p and in the slope of the link only. The "
        "smallest slope κ is in the paper's radius for the probability, which is proportional to "
        f"1/κ: κ = {listing(slopes)}."
    )


def _policies(maker: RandomContextual, horizon: int) -> dict[str, Any]:
    return {label: policies(maker, horizon)[label] for label in PLAYING}


def verdicts(panels: Sequence[ContextualPanel]) -> tuple[Verdict, ...]:
    """Judge whether the links give similar results, and our targets on each of them."""
    named = {panel.name: panel.result for panel in panels}
    return (
        same_order(panels),
        same_size(panels),
        *(
            grows(
                f"The zero-inflated UCB and TS are sublinear for every link: {version}",
                ((name, result, label) for label in labels for name, result in named.items()),
                exponents=True,
            )
            for version, labels in VERSIONS.items()
        ),
        *targets(named),
    )


def same_order(panels: Sequence[ContextualPanel]) -> Verdict:
    """Judge whether the paper's methods rank under each link as they do under the probit."""
    first, *others = panels
    cases = []
    for pair in itertools.combinations((*PRINTED, *ON_MEANS, *NAIVE), 2):
        known = compare(first.name, first.result, *pair)
        if known.higher:
            pair = pair[::-1]
        if known.higher or known.lower:
            cases += [compare(panel.name, panel.result, *pair) for panel in others]
    return from_cases(
        "Results for the various links are quite similar: the paper's methods rank as under the "
        "probit (pairs whose order is clear there)",
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=lambda c: (f"{c.first} below {c.second}", c.panel),
    )


def same_size(panels: Sequence[ContextualPanel]) -> Verdict:
    """Judge whether each method's regret is close to what it is under the probit."""
    first, *others = panels
    cases = [
        Ratio(
            panel.name,
            label,
            f"itself under the {first.name}",
            *ratio_of_means(final_regrets(panel.result, label), final_regrets(first.result, label)),
        )
        for panel in others
        for label in panel.result.labels
    ]
    verdict = from_cases(
        f"Results for the various links are quite similar: regret within a factor {SIMILAR:g} of "
        "that under the probit",
        cases,
        good=lambda r: r.high <= SIMILAR and r.low >= 1 / SIMILAR,
        bad=lambda r: r.low > SIMILAR or r.high < 1 / SIMILAR,
        name=lambda r: (r.first, r.panel),
    )
    spans = [
        f"{link} {min(values):.2f} to {max(values):.2f}" for link, values in _by_link(cases).items()
    ]
    if not spans:
        return verdict
    return replace(verdict, words=f"{verdict.words} (times the probit: {', '.join(spans)})")


def _by_link(cases: Sequence[Ratio]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for case in cases:
        out.setdefault(case.panel, []).append(case.ratio)
    return out
