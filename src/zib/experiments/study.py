"""The multi-armed study as one record: settings, figures, tables, verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import zib
from zib.env.generators import RandomMAB
from zib.experiments.panels import panel_ids, run_panels
from zib.experiments.record import (
    Context,
    Picture,
    Record,
    Setting,
    Table,
    Verdict,
    provenance,
)
from zib.experiments.study_claims import verdicts
from zib.experiments.study_figures import Shown, pictures, tables


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
            "beyond the paper",
            "ZI-KL-UCB, ZI-IMED and ZI posterior are told the family and, where Gaussian, the "
            "size; ZI adaptive is told nothing",
            "ours",
        ),
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


class Planned(NamedTuple):
    """What identifies a figure, and how much of it was asked for."""

    context: Context
    id: str
    title: str
    about: str
    panels: int
    started: float


def assemble(
    plan: Planned,
    panels: Sequence[Shown],
    *,
    settings: Sequence[Setting],
    draw: Callable[[Mapping[str, Any]], tuple[Picture, ...]],
    tables: Sequence[Table],
    verdicts: Sequence[Verdict],
    notes: Sequence[str],
) -> Record:
    """Return the record of a figure from the panels that were finished.

    `draw` makes the pictures, given their provenance.
    """
    context = plan.context
    origin = provenance([panel.result.provenance["plan_hash"] for panel in panels], context.seed)
    context.tell("drawing", 0.97)
    missing = plan.panels - len(panels)
    stopped = (f"Interrupted: {missing} of {plan.panels} panels are missing.",) if missing else ()
    return Record(
        id=plan.id,
        title=plan.title,
        about=plan.about,
        scale=context.scale,
        settings=tuple(settings),
        pictures=draw(origin),
        tables=tuple(tables),
        verdicts=tuple(verdicts),
        notes=(*stopped, *notes),
        seconds=time.perf_counter() - plan.started,
        provenance=origin,
        interrupted=bool(missing),
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
    ids = panel_ids(tags)
    plan = Planned(context, id, title, about, len(ids), time.perf_counter())
    panels = list(run_panels(context, ids, horizon, replications))
    if not panels:
        raise KeyboardInterrupt
    ranges = [zib.env.PAPER_PROBS[tag] for tag in tags]
    probs = "p ~ " + ", ".join(f"U[{low:g}, {high:g}]" for low, high in ranges)
    return assemble(
        plan,
        panels,
        settings=settings(horizon, replications, context, probs, paper_horizon),
        draw=lambda origin: pictures(panels, context.folder, id, origin, log=log),
        tables=tables(panels),
        verdicts=verdicts(panels),
        notes=notes,
    )
