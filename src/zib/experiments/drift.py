"""Arms that change: what forgetting gains where p or mu drifts, and its price elsewhere; and a
policy that notices by itself whether there is something to forget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import zib
from zib.env import DriftingMAB
from zib.experiments.draw import Look, side_by_side
from zib.experiments.harness import Panel, Played, Scaled, Simulated
from zib.experiments.judge import at_most, below, compare, from_cases, grows, ratios
from zib.experiments.record import Setting, Table, Verdict
from zib.report.numbers import listing

HALF_LIFE, WINDOW = 1000, 1500  # discounting remembers 1000/log 2 = 1443 rewards
STILL = "nothing drifts"
WORLDS = {
    "drifting-mab-probs-v1": "only p drifts",
    "drifting-mab-means-v1": "only mu drifts",
    "drifting-mab-none-v1": STILL,
}
POSTERIOR, IMED, UCB1 = "ZI posterior", "ZI-IMED", "UCB1"
ADAPTIVE = "ZI adaptive"
WATCHING = f"{ADAPTIVE}, watching"
AT_MOST = 1.1  # times the regret of a fixed memory
FORGETTING = {"discounted": "discounting", "window": "a window"}
DISCOUNTED, WINDOWED = FORGETTING


def forgetful(label: str, how: str) -> str:
    """Return the label of a policy that forgets."""
    return f"{label}, {how}"


class Drift(Simulated):
    """Three worlds: p moves, mu moves, nothing moves."""

    order = 16
    title = "Arms that change: stationary, discounted, windowed and watching policies"
    about = (
        "The same policies as they are, with discounted statistics, and with those of a window, "
        "where the probabilities drift, where the magnitudes drift, and where nothing does; and "
        "the default policy as it is and with changes that it notices by itself."
    )
    weight = 1.0
    horizon = 20_000
    replications = Scaled(quick=5, paper=50)
    look = Look(
        groups={
            "as it is": (POSTERIOR, IMED, ADAPTIVE),
            DISCOUNTED: tuple(forgetful(x, DISCOUNTED) for x in (POSTERIOR, IMED, UCB1)),
            WINDOWED: tuple(forgetful(x, WINDOWED) for x in (POSTERIOR, IMED)),
            "watching": (WATCHING,),
        },
        caption=(
            "Mean cumulative dynamic regret (against the best arm of each round) with 95 % bands. "
            "Left: the probabilities of paying move along sine waves. Middle: the mean magnitudes "
            "do. Right: nothing moves; the difference is the price of forgetting."
        ),
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        maker: Any = zib.env.make(next(iter(WORLDS)))
        speed = max(maker.prob_speed, maker.mean_speed)
        return (
            Setting("arms", f"K = {maker.n_arms}", "ours"),
            Setting("horizon", f"T = {self.horizon}", "ours"),
            Setting("replications", f"N = {self.replications}", "ours"),
            Setting(
                "paths",
                f"sine waves with random phases, one cycle in {1 / speed:.0f} rounds: logit p "
                f"between the logits of {maker.probs[0]:g} and {maker.probs[1]:g}, mu between "
                f"{maker.magnitudes[0]:g} and {maker.magnitudes[1]:g}; what does not move stays "
                "where it starts",
                "ours",
            ),
            Setting("rewards", f"Gaussian, standard deviation {maker.sigma:g}, known", "ours"),
            Setting(
                "memory",
                f"half-life {HALF_LIFE} rewards; window of {WINDOW} rewards, all arms",
                "ours",
            ),
            Setting("regret", "against the best arm of each round", "ours"),
            Setting("UCB1", "scale that covers nearly all rewards", "ours"),
        )

    def panels(self) -> list[Panel]:
        """Return a panel per world; ZI-IMED, which is slow here, plays at paper scale only."""
        found = []
        for environment, name in WORLDS.items():
            maker: Any = zib.env.make(environment)
            found.append(
                Panel(
                    name=name,
                    key={"prob_speed": maker.prob_speed, "mean_speed": maker.mean_speed},
                    env=maker,
                    policies=policies(maker, imed=not self.context.quick),
                    horizon=self.horizon,
                    replications=self.replications,
                )
            )
        return found

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return final regrets, a column per world."""
        return [side_by_side("Dynamic regret", found, [panel.name for panel in found])]

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge what forgetting gains, what it costs, and against whom."""
        moving = [panel for panel in found if panel.name != STILL]
        still = [panel for panel in found if panel.name == STILL]
        who = listing([x for x in (POSTERIOR, IMED) if x in found[0].result.labels])
        with_fixed_memory = [
            forgetful(label, how) for label in (POSTERIOR, IMED) for how in FORGETTING
        ]
        return (
            *(
                _against_itself(
                    f"Where p or mu drifts, {words} lowers regret ({who})", moving, how, "lower"
                )
                for how, words in FORGETTING.items()
            ),
            *(
                _against_itself(
                    f"Where nothing drifts, {words} raises regret ({who})", still, how, "higher"
                )
                for how, words in FORGETTING.items()
            ),
            grows(
                f"With a fixed memory regret grows linearly where nothing drifts ({who})",
                ((p.name, p.result, label) for p in still for label in with_fixed_memory),
                "linear",
                exponents=True,
            ),
            below(
                "Discounted, the ZI posterior has lower regret than UCB1 in every world",
                {panel.name: panel.result for panel in found},
                forgetful(POSTERIOR, DISCOUNTED),
                forgetful(UCB1, DISCOUNTED),
            ),
            at_most(
                f"The default that notices changes, told nothing, has at most {AT_MOST:g} times "
                "the regret of the ZI posterior with a fixed memory in every world",
                [
                    compare(panel.name, panel.result, WATCHING, other, factor=AT_MOST)
                    for panel in found
                    for other in (forgetful(POSTERIOR, how) for how in FORGETTING)
                ],
            ),
        )

    def notes(self, found: list[Played]) -> Iterable[str]:
        """Say what a fixed memory means."""
        if self.context.quick:
            yield "Quick scale: few replications, and ZI-IMED plays at --scale paper only."
        yield (
            "A policy with a fixed memory can never be sure, so its regret grows linearly even "
            "where nothing moves. A longer memory costs less there and follows more slowly: the "
            "memory has to be chosen for the speed of the drift. A policy that notices changes "
            "forgets when there is something to forget, and nothing has to be chosen."
        )


def policies(maker: DriftingMAB, *, imed: bool) -> dict[str, Any]:
    """Return who plays: policies as they are and made to forget."""
    watching = zib.mab.Watching()
    plain: dict[str, Any] = {POSTERIOR: zib.mab.ZIPosterior(sigma=maker.sigma)}
    if imed:
        plain[IMED] = zib.mab.ZIIMED(sigma=maker.sigma)
    # a scale that covers nearly all rewards, as a user would choose it
    scale = maker.magnitudes[1] + 2.0 * maker.sigma
    everybody = {**plain, UCB1: zib.mab.UCB1(scale=scale)}
    return {
        **plain,
        **{
            forgetful(label, DISCOUNTED): zib.mab.Discounted(spec, HALF_LIFE)
            for label, spec in everybody.items()
        },
        **{
            forgetful(label, WINDOWED): zib.mab.Windowed(spec, WINDOW)
            for label, spec in plain.items()
        },
        ADAPTIVE: watching.spec,
        WATCHING: watching,
    }


def _against_itself(claim: str, panels: Sequence[Played], how: str, direction: str) -> Verdict:
    """Judge whether a policy that forgets is lower, or higher, than itself as it is."""
    other = {"lower": "higher", "higher": "lower"}[direction]
    cases = [
        compare(panel.name, panel.result, forgetful(label, how), label)
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
