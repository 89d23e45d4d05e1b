"""Figure 3: regret of the contextual policies, seven of ten entries not zero."""

from zib.experiments.contextual_study import ContextualStudy
from zib.experiments.harness import Scaled


class Figure3(ContextualStudy):
    """Three noises at the paper's horizon."""

    order = 3
    title = "Figure 3: contextual regret, s = 7"
    about = (
        "A hundred actions with ten features each, three noises, the policies of the paper and two "
        "of ours."
    )
    weight = 6.5
    sparsities = (7,)
    link_source = "paper"
    replications = Scaled(quick=3, paper=25)
    logarithmic = True
