"""Figure S3: the study of figure 3 for sparser coefficients."""

from zib.experiments import contextual_study
from zib.experiments.contextual_panels import FEW, HORIZON, REPLICATIONS
from zib.experiments.record import Context, Record

ID = "figS3"
TITLE = "Figure S3: contextual regret, s = 1, 3, 5"
WEIGHT = 10.0


def run(context: Context) -> Record:
    """Play three rows of three panels at the paper's horizon."""
    return contextual_study.record(
        context,
        id=ID,
        title=TITLE,
        about="The rows are s = 1, 3 and 5: the number of entries of θ and of each arm's centre "
        "that are not zero.",
        sparsities=(1, 3, 5),
        horizon=HORIZON,
        replications=FEW - 1 if context.quick else REPLICATIONS,
        link_from="ours",
        log=False,
    )
