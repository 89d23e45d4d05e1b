"""Arms that change: what forgetting gains where p or mu drifts, and its price elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib.env import DriftingMAB
from zib.experiments.judge import below, compare, from_cases, grows, ratios
from zib.experiments.panels import play
from zib.experiments.record import Context, Record, Setting, Verdict
from zib.experiments.study import Planned, assemble
from zib.experiments.study_figures import Look, pictures, side_by_side
from zib.sim import Results

ID = "drift"
TITLE = "Arms that change: stationary, discounted and windowed policies"
WEIGHT = 1.0
HORIZON, REPLICATIONS, FEW = 20_000, 50, 5
HALF_LIFE, WINDOW = 1000, 1500  # discounting remembers 1000/log 2 = 1443 rewards

WORLDS = {
    "drifting-mab-probs-v1": "only p drifts",
    "drifting-mab-means-v1": "only mu drifts",
    "drifting-mab-none-v1": "nothing drifts",
}
STILL = "nothing drifts"
POSTERIOR, IMED, UCB1 = "ZI posterior", "ZI-IMED", "UCB1"
DISCOUNTED, WINDOWED = "discounted", "window"


def _forgetting(label: str, how: str) -> str:
    return f"{label}, {how}"


LOOK = Look(
    groups={
        "as it is": (POSTERIOR, IMED),
        "discounted": tuple(_forgetting(x, DISCOUNTED) for x in (POSTERIOR, IMED, UCB1)),
        "window": tuple(_forgetting(x, WINDOWED) for x in (POSTERIOR, IMED)),
    },
    caption=(
        "Mean cumulative dynamic regret (against the best arm of each round) with 95 % bands. "
        "Left: the probabilities of paying move along sine waves. Middle: the mean magnitudes do. "
        "Right: nothing moves; the difference is the price of forgetting."
    ),
    right=0.25,
)


class World(NamedTuple):
    """One panel: what moves, and what came out."""

    maker: DriftingMAB
    name: str
    result: Results

    @property
    def title(self) -> str:
        """What stands over the panel."""
        return self.name

    @property
    def key(self) -> dict[str, object]:
        """What tells this panel from others, as columns of a table."""
        return {"prob_speed": self.maker.prob_speed, "mean_speed": self.maker.mean_speed}

    @property
    def references(self) -> dict[str, NDArray[np.float64]]:
        """No curve but those of policies."""
        return {}


def policies(maker: DriftingMAB, *, imed: bool) -> dict[str, Any]:
    """Return who plays: policies as they are and made to forget."""
    plain: dict[str, Any] = {POSTERIOR: zib.mab.ZIPosterior(sigma=maker.sigma)}
    if imed:
        plain[IMED] = zib.mab.ZIIMED(sigma=maker.sigma)
    # a scale that covers nearly all rewards, as a user would choose it
    scale = maker.magnitudes[1] + 2.0 * maker.sigma
    forgetful = {**plain, UCB1: zib.mab.UCB1(scale=scale)}
    return {
        **plain,
        **{
            _forgetting(label, DISCOUNTED): zib.mab.Discounted(spec, HALF_LIFE)
            for label, spec in forgetful.items()
        },
        **{
            _forgetting(label, WINDOWED): zib.mab.Windowed(spec, WINDOW)
            for label, spec in plain.items()
        },
    }


def run(context: Context) -> Record:
    """Play three worlds."""
    replications = FEW if context.quick else REPLICATIONS
    about = (
        "The same policies as they are, with discounted statistics, and with those of a window, "
        "where the probabilities drift, where the magnitudes drift, and where nothing does."
    )
    plan = Planned(context, ID, TITLE, about, len(WORLDS), time.perf_counter())
    panels = [
        World(maker, _name(maker), result)
        for maker, result in play(
            context,
            list(WORLDS),
            lambda maker, horizon: policies(maker, imed=not context.quick),
            HORIZON,
            replications,
        )
    ]
    if not panels:
        raise KeyboardInterrupt
    return assemble(
        plan,
        panels,
        settings=_settings(context, panels[0].maker, replications),
        draw=lambda origin: pictures(panels, context.folder, ID, origin, log=False, look=LOOK),
        tables=[side_by_side("Dynamic regret", panels, [p.name for p in panels])],
        verdicts=verdicts(panels),
        notes=[
            *(
                ["Quick scale: few replications, and ZI-IMED plays at --scale paper only."]
                if context.quick
                else []
            ),
            "A policy with a fixed memory can never be sure, so its regret grows linearly even "
            "where nothing moves. A longer memory costs less there and follows more slowly: the "
            "memory has to be chosen for the speed of the drift.",
        ],
    )


def _name(maker: DriftingMAB) -> str:
    if maker.prob_speed > 0.0:
        return WORLDS["drifting-mab-probs-v1"]
    return WORLDS["drifting-mab-means-v1"] if maker.mean_speed > 0.0 else STILL


def verdicts(panels: Sequence[World]) -> tuple[Verdict, ...]:
    """Judge what forgetting gains, what it costs, and against whom."""
    moving = [panel for panel in panels if panel.name != STILL]
    still = [panel for panel in panels if panel.name == STILL]
    named = {panel.name: panel.result for panel in panels}
    forgetful = [
        _forgetting(label, how) for label in (POSTERIOR, IMED) for how in (DISCOUNTED, WINDOWED)
    ]
    return (
        *(
            _against_itself(f"Where p or mu drifts, {words} lowers regret", moving, how, "lower")
            for how, words in ((DISCOUNTED, "discounting"), (WINDOWED, "a window"))
        ),
        *(
            _against_itself(f"Where nothing drifts, {words} raises regret", still, how, "higher")
            for how, words in ((DISCOUNTED, "discounting"), (WINDOWED, "a window"))
        ),
        grows(
            "With a fixed memory regret grows linearly where nothing drifts",
            ((panel.name, panel.result, label) for panel in still for label in forgetful),
            "linear",
            exponents=True,
        ),
        below(
            "Discounted, the ZI posterior has lower regret than UCB1 in every world",
            named,
            _forgetting(POSTERIOR, DISCOUNTED),
            _forgetting(UCB1, DISCOUNTED),
        ),
    )


def _against_itself(claim: str, panels: Sequence[World], how: str, direction: str) -> Verdict:
    """Judge whether a policy that forgets is lower, or higher, than itself as it is."""
    other = {"lower": "higher", "higher": "lower"}[direction]
    cases = [
        compare(panel.name, panel.result, _forgetting(label, how), label)
        for panel in panels
        for label in (POSTERIOR, IMED)
        if label in panel.result.labels
    ]
    verdict = from_cases(
        claim,
        cases,
        good=lambda c: bool(getattr(c, direction)),
        bad=lambda c: bool(getattr(c, other)),
        name=lambda c: (c.second, c.panel),
    )
    if not cases:
        return verdict
    spans = ratios(cases).replace(cases[0].second, "the policy as it is")
    return replace(verdict, words=verdict.words + spans)


def _settings(context: Context, maker: DriftingMAB, replications: int) -> tuple[Setting, ...]:
    speed = max(maker.prob_speed, maker.mean_speed)
    return (
        Setting("arms", f"K = {maker.n_arms}", "ours"),
        Setting("horizon", f"T = {HORIZON}", "ours"),
        Setting("replications", f"N = {replications}", "ours"),
        Setting(
            "paths",
            f"sine waves with random phases, one cycle in {1 / speed:.0f} rounds: logit p between "
            f"the logits of {maker.probs[0]:g} and {maker.probs[1]:g}, mu between "
            f"{maker.magnitudes[0]:g} and {maker.magnitudes[1]:g}; what does not move stays where "
            "it starts",
            "ours",
        ),
        Setting("rewards", f"Gaussian, standard deviation {maker.sigma:g}, known", "ours"),
        Setting(
            "memory", f"half-life {HALF_LIFE} rewards; window of {WINDOW} rewards, all arms", "ours"
        ),
        Setting("regret", "against the best arm of each round", "ours"),
        Setting("UCB1", "scale that covers nearly all rewards", "ours"),
        Setting("seed", str(context.seed), "ours"),
    )
