"""Off-policy evaluation; written in `zib.logs.ope`."""

from zib.logs.ope import *  # noqa: F403
from zib.logs.ope import __all__ as __all__
