"""Figure S2: the study of figure 2 when fewer than one reward in a hundred is not zero."""

from zib.experiments.harness import Scaled
from zib.experiments.mab_study import MultiArmedStudy


class FigureS2(MultiArmedStudy):
    """Three families of rewards at the paper's shorter horizon."""

    order = 6
    title = "Figure S2: multi-armed regret, tiny p in [0.0005, 0.01]"
    about = (
        "Ten arms that almost never pay, over a horizon that shows each arm a handful of non-zero "
        "rewards."
    )
    weight = 1.5
    tags = ("tiny",)
    horizon = 10_000
    replications = Scaled(quick=50, paper=50)
    remarks = (
        "The horizon is short for such small probabilities: a policy that does nothing but explore "
        "loses about the mean gap per round, so linear growth at T = 10 000 says that a policy has "
        "not yet learned, not that it never will.",
    )
