"""Figure S1: the study of figure 2 for four smaller ranges of probabilities."""

from zib.experiments import study
from zib.experiments.record import Context, Record

ID = "figS1"
TITLE = "Figure S1: multi-armed regret, four ranges of p from 0.10 to 0.30"
WEIGHT = 12.0


def run(context: Context) -> Record:
    """Play four rows of three panels."""
    return study.record(
        context,
        id=ID,
        title=TITLE,
        about="The rows are p in [0.10, 0.15], [0.15, 0.20], [0.20, 0.25] and [0.25, 0.30].",
        tags=("p10", "p15", "p20", "p25"),
        horizon=75_000,
        replications=6 if context.quick else 50,
        paper_horizon=75_000,
    )
