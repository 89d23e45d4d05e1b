"""Two files to one log: exposures, and the conversions that came of them later."""

from zib.logs.joining.join import join
from zib.logs.joining.joined import ArmRates, Joined

__all__ = ["ArmRates", "Joined", "join"]
