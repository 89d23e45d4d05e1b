"""Figure S1: the study of figure 2 for four smaller ranges of probabilities."""

from zib.experiments.harness import Scaled
from zib.experiments.mab_study import MultiArmedStudy


class FigureS1(MultiArmedStudy):
    """Four rows of three panels."""

    order = 5
    title = "Figure S1: multi-armed regret, four ranges of p from 0.10 to 0.30"
    about = "The rows are p in [0.10, 0.15], [0.15, 0.20], [0.20, 0.25] and [0.25, 0.30]."
    weight = 12.0
    tags = ("p10", "p15", "p20", "p25")
    horizon = 75_000
    replications = Scaled(quick=6, paper=50)
    logarithmic = True
