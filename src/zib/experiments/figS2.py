"""Figure S2: the study of figure 2 when fewer than one reward in a hundred is not zero."""

from zib.experiments import study
from zib.experiments.record import Context, Record

ID = "figS2"
TITLE = "Figure S2: multi-armed regret, tiny p in [0.0005, 0.01]"
WEIGHT = 1.5


def run(context: Context) -> Record:
    """Play three families of rewards at the paper's shorter horizon."""
    return study.record(
        context,
        id=ID,
        title=TITLE,
        about="Ten arms that almost never pay, over a horizon that shows each arm a handful of "
        "non-zero rewards.",
        tags=("tiny",),
        horizon=10_000,
        replications=50,
        paper_horizon=10_000,
        notes=(
            "The horizon is short for such small probabilities: a policy that does nothing but "
            "explore loses about the mean gap per round, so linear growth at T = 10 000 says that "
            "a policy has not yet learned, not that it never will.",
        ),
        log=False,
    )
