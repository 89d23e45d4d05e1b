"""Logs and public data; written in `zib.logs`."""

from zib.logs import *  # noqa: F403
from zib.logs import __all__ as __all__
from zib.logs import __getattr__ as __getattr__
