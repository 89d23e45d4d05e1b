"""Figure 2: regret of all policies when about a third of the rewards are not zero."""

from zib.experiments import study
from zib.experiments.record import Context, Record

ID = "fig2"
TITLE = "Figure 2: multi-armed regret, p in [0.30, 0.35]"
WEIGHT = 3.0  # share of the work of a full run


def run(context: Context) -> Record:
    """Play three families of rewards at the paper's horizon."""
    return study.record(
        context,
        id=ID,
        title=TITLE,
        about="Ten arms, three families of rewards, all policies of the paper and a few others.",
        tags=("p30",),
        horizon=75_000,
        replications=8 if context.quick else 50,
        paper_horizon=75_000,
    )
