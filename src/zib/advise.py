"""Advice on a log; written in `zib.logs.advise`."""

from zib.logs.advise import *  # noqa: F403
from zib.logs.advise import __all__ as __all__
