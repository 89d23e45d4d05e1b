"""The contextual study as one record: settings, figures, tables, verdicts, notes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from zib.env.contextual_draws import NOISES, Noise
from zib.experiments.contextual_claims import verdicts
from zib.experiments.contextual_notes import (
    few_replications,
    what_the_theorem_says,
    why_naive_does_well,
)
from zib.experiments.contextual_panels import (
    GROUPS,
    HORIZON,
    REPLICATIONS,
    RIDGE,
    ContextualPanel,
    panel_ids,
    run_panels,
)
from zib.experiments.panels import TITLES
from zib.experiments.record import Context, Record, Setting, Source, Table
from zib.experiments.study import Planned, assemble
from zib.experiments.study_figures import Look, detailed_table, pictures, side_by_side

YARDSTICK = "ZI-UCB printed"
CAPTION = (
    "Mean cumulative regret with 95 % bands, linear axes as in the paper. Green and blue: the "
    "paper's policies, dashed as printed, solid on the scale of means. Orange and pink: its "
    "baselines. Purple: one estimate of the uncertainty of p·mu for both parts."
)
LAWS: dict[Noise, str] = {
    "gaussian": "N(0, 1)",
    "mixture": "the mixture ½N(−√¾, ¼) + ½N(√¾, ¼)",
    "exponential": "Exp(1) − 1",
}
UNFAIR = Setting(
    "Thompson sampling with exponential noise",
    "the paper shows none; shown here, but no claim of the paper is judged on it",
    "ours",
)
LOOK = Look(GROUPS, CAPTION, right=0.22)


def settings(
    context: Context,
    horizon: int,
    replications: int,
    *,
    sparsity: str,
    link: str,
    link_from: Source,
    noises: Sequence[Noise] = NOISES,
) -> tuple[Setting, ...]:
    """Return the settings of a contextual figure."""
    asked, given = f"T = {horizon}", f"N = {replications}"
    if horizon != HORIZON:
        asked += f" (the paper: {HORIZON})"
    if replications != REPLICATIONS:
        given += f" (the paper: {REPLICATIONS})"
    return (
        Setting("actions", "K = 100 in each round, d = 10 features for each part", "paper"),
        Setting("features", "x ~ N(ν_k, I/(2K)) for arm k; z = x, w = sin(x)", "paper"),
        Setting("β", "entries U[0, 1], scaled to norm 1; redrawn per replication", "paper"),
        Setting(
            "θ and ν_k",
            f"s non-zero entries U[0, 1], s = {sparsity}; redrawn per replication",
            "paper",
        ),
        Setting("their scale", "norm 1 each; the s places are drawn for each vector", "ours"),
        Setting("link of the occurrence", link, link_from),
        Setting("noise of non-zero rewards", "standard deviation 1", "paper"),
        Setting("its law", "; ".join(LAWS[noise] for noise in noises), "ours"),
        Setting("horizon", asked, "paper" if horizon == HORIZON else "ours"),
        Setting("replications", given, "paper" if replications == REPLICATIONS else "ours"),
        Setting("confidence level", "δ = 1/T; radii ρ_X, ρ_Y of Assumption B.3", "paper"),
        Setting("spread of Thompson sampling", "ϱ² = 24σ²d·log(T)²/K²", "paper"),
        Setting(
            "what policies know",
            "the link; those of the paper also σ = 1 and that β and θ have norm at most 1",
            "paper",
        ),
        Setting(
            "ridge and random rounds",
            f"λ = {RIDGE:g} for every matrix and estimate; τ = 50 random rounds for the paper's "
            "policies",
            "ours",
        ),
        Setting(
            "ZI-UCB printed, ZI-TS printed",
            "Algorithms B.3 and B.4: the product of the bounds, or draws, of the linear predictors",
            "paper",
        ),
        Setting(
            "ZI-UCB, ZI-TS",
            "the template of Algorithm 2: bounds or draws of h and g themselves, h within [0, 1], "
            "paired with its lower bound where g is negative",
            "fix",
        ),
        Setting(
            "naive and integrated UCB",
            "widths √ρ_X and √max(ρ_X, ρ_Y): the root of the radius, as printed",
            "paper",
        ),
        Setting(
            "norms and fit of the baselines",
            "norms in the inverses of U and W (printed without); integrated: least squares "
            "(printed: the norm of the sum of the residuals)",
            "fix",
        ),
        *((UNFAIR,) if "exponential" in noises else ()),
        Setting(
            "Joint-UCB, Laplace-TS",
            "one standard error of p·mu by the delta method, times √log(1 + t); draws from the "
            "Gaussian approximation of the posterior. σ is estimated, nothing is tuned",
            "ours",
        ),
        Setting(
            "pairing",
            "all policies of a replication meet the same features, and an action would pay the "
            "same to each",
            "ours",
        ),
        Setting("seed", str(context.seed), "ours"),
    )


def tables(panels: Sequence[ContextualPanel]) -> tuple[Table, ...]:
    """Return final regrets: one detailed table per panel, or one per noise over sparsities."""
    if len({panel.maker.sparsity for panel in panels}) == 1:
        return tuple(detailed_table(panel, YARDSTICK, f"× {YARDSTICK}") for panel in panels)
    out = []
    for noise in NOISES:
        rows = [panel for panel in panels if panel.maker.noise == noise]
        if rows:
            columns = [f"s = {panel.maker.sparsity}" for panel in rows]
            out.append(side_by_side(f"{TITLES[noise]} noise", rows, columns))
    return tuple(out)


def record(
    context: Context,
    *,
    id: str,
    title: str,
    about: str,
    sparsities: Sequence[int],
    horizon: int,
    replications: int,
    link_from: Source,
    log: bool,
) -> Record:
    """Run the panels of one figure and return everything the report shows about it.

    An interrupted run is reported from the panels that were finished; without any it raises
    KeyboardInterrupt.
    """
    ids = panel_ids(sparsities)
    plan = Planned(context, id, title, about, len(ids), time.perf_counter())
    panels = list(run_panels(context, ids, horizon, replications))
    if not panels:
        raise KeyboardInterrupt
    makers = [panel.maker for panel in panels[:: len(NOISES)]]  # noise changes neither p nor mu
    notes = [
        why_naive_does_well(makers, context.seed, replications, horizon),
        what_the_theorem_says(makers[0], context.seed, replications, horizon),
    ]
    if replications < REPLICATIONS:
        notes.insert(0, few_replications(replications))
    return assemble(
        plan,
        panels,
        settings=settings(
            context,
            horizon,
            replications,
            sparsity=", ".join(map(str, sparsities)),
            link="probit",
            link_from=link_from,
        ),
        draw=lambda origin: pictures(panels, context.folder, id, origin, log=log, look=LOOK),
        tables=tables(panels),
        verdicts=verdicts(panels),
        notes=notes,
    )
