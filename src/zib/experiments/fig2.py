"""Figure 2: regret of all policies when about a third of the rewards are not zero."""

from zib.experiments.harness import Scaled
from zib.experiments.mab_study import MultiArmedStudy


class Figure2(MultiArmedStudy):
    """Three families of rewards at the paper's horizon."""

    order = 2
    title = "Figure 2: multi-armed regret, p in [0.30, 0.35]"
    about = "Ten arms, three families of rewards, all policies of the paper and a few others."
    weight = 3.0
    tags = ("p30",)
    horizon = 75_000
    replications = Scaled(quick=8, paper=50)
    logarithmic = True
