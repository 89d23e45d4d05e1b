"""Multi-armed policies. Each name is a spec: parameters only, passed to `Bandit` or `simulate`."""

from zib.mab.anytime import Anytime
from zib.mab.baselines import MOTS, UCB
from zib.mab.classics import KLUCB, UCB1, UCBV, BetaTS, EpsilonGreedy, NormalTS
from zib.mab.drift import Discounted
from zib.mab.drift_window import Windowed
from zib.mab.outcomes import OutcomesKLUCB
from zib.mab.outcomes_posterior import OutcomesPosterior
from zib.mab.posterior import ZIPosterior
from zib.mab.tails import SubExponential, SubGaussian, SubWeibull, Tail
from zib.mab.zi_adaptive import ZIAdaptive
from zib.mab.zi_heavy import ZIHeavyUCB
from zib.mab.zi_imed import ZIIMED
from zib.mab.zi_kl import ZIKLUCB
from zib.mab.zi_stable import ZIStableTS
from zib.mab.zi_ts import ZITS, ZIExponentialTS
from zib.mab.zi_ucb import ZIUCB

__all__ = [
    "KLUCB",
    "MOTS",
    "UCB",
    "UCB1",
    "UCBV",
    "ZIIMED",
    "ZIKLUCB",
    "ZITS",
    "ZIUCB",
    "Anytime",
    "BetaTS",
    "Discounted",
    "EpsilonGreedy",
    "NormalTS",
    "OutcomesKLUCB",
    "OutcomesPosterior",
    "SubExponential",
    "SubGaussian",
    "SubWeibull",
    "Tail",
    "Windowed",
    "ZIAdaptive",
    "ZIExponentialTS",
    "ZIHeavyUCB",
    "ZIPosterior",
    "ZIStableTS",
]
