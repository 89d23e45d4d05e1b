"""Figure 3: regret of the contextual policies, seven of ten entries not zero."""

from zib.experiments import contextual_study
from zib.experiments.contextual_panels import FEW, HORIZON, REPLICATIONS
from zib.experiments.record import Context, Record

ID = "fig3"
TITLE = "Figure 3: contextual regret, s = 7"
WEIGHT = 6.5


def run(context: Context) -> Record:
    """Play three noises at the paper's horizon."""
    return contextual_study.record(
        context,
        id=ID,
        title=TITLE,
        about="A hundred actions with ten features each, three noises, the policies of the paper "
        "and two of ours.",
        sparsities=(7,),
        horizon=HORIZON,
        replications=FEW if context.quick else REPLICATIONS,
        link_from="paper",
        log=True,
    )
