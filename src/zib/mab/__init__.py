"""Multi-armed policies. Each name is a spec: parameters only, passed to `Bandit` or `simulate`."""

from zib.mab.adaptive import ZIAdaptive as ZIAdaptive
from zib.mab.assumptions import SubExponential as SubExponential
from zib.mab.assumptions import SubGaussian as SubGaussian
from zib.mab.assumptions import SubWeibull as SubWeibull
from zib.mab.assumptions import Tail as Tail
from zib.mab.classics import KLUCB as KLUCB
from zib.mab.classics import MOTS as MOTS
from zib.mab.classics import UCB as UCB
from zib.mab.classics import UCB1 as UCB1
from zib.mab.classics import UCBV as UCBV
from zib.mab.classics import BetaTS as BetaTS
from zib.mab.classics import EpsilonGreedy as EpsilonGreedy
from zib.mab.classics import NormalTS as NormalTS
from zib.mab.index import ZIUCB as ZIUCB
from zib.mab.index import ZIHeavyUCB as ZIHeavyUCB
from zib.mab.kl import ZIIMED as ZIIMED
from zib.mab.kl import ZIKLUCB as ZIKLUCB
from zib.mab.outcomes import OutcomesKLUCB as OutcomesKLUCB
from zib.mab.outcomes_posterior import OutcomesPosterior as OutcomesPosterior
from zib.mab.pending import Pending as Pending
from zib.mab.posterior import ZIPosterior as ZIPosterior
from zib.mab.thompson import ZITS as ZITS
from zib.mab.thompson import ZIExponentialTS as ZIExponentialTS
from zib.mab.thompson import ZIStableTS as ZIStableTS
from zib.mab.watching import Watching as Watching
from zib.mab.windowed import Windowed as Windowed
from zib.mab.wrappers import Anytime as Anytime
from zib.mab.wrappers import Discounted as Discounted

# Importing a policy here makes it public.
__all__ = [name for name in dir() if name[0].isupper()]
