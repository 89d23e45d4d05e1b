"""Logs of one's own and public data sets. Nothing is ever downloaded."""

from typing import Any

from zib.logs.catalogue import (
    Check,
    DataSet,
    Finding,
    catalogue_rows,
    check,
    check_text,
    info,
    info_text,
    load_frame,
    loaders,
    names,
)
from zib.logs.guess import Guess, guess_columns
from zib.logs.joining import Joined, join
from zib.logs.log import Log, LogBatch, LoggedData
from zib.logs.read import LogScan, open_log
from zib.logs.tables import LogError

__all__ = [
    "Check",
    "DataSet",
    "Finding",
    "Guess",
    "Joined",
    "Log",
    "LogBatch",
    "LogError",
    "LogScan",
    "LoggedData",
    "catalogue_rows",
    "check",
    "check_text",
    "guess_columns",
    "info",
    "info_text",
    "join",
    "load_frame",
    "names",
    "open_log",
    *loaders(),
]


def __getattr__(name: str) -> Any:
    """Return a function of a public data set, such as ``load_cprm``."""
    if name in loaders():
        return loaders()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
