"""Figure S3: the study of figure 3 for sparser coefficients."""

from zib.experiments.contextual_study import ContextualStudy
from zib.experiments.harness import Scaled


class FigureS3(ContextualStudy):
    """Three rows of three panels at the paper's horizon."""

    order = 7
    title = "Figure S3: contextual regret, s = 1, 3, 5"
    about = (
        "The rows are s = 1, 3 and 5: the number of entries of θ and of each arm's centre that are "
        "not zero."
    )
    weight = 10.0
    sparsities = (1, 3, 5)
    replications = Scaled(quick=2, paper=25)
