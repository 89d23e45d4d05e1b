"""Logs of one's own and public data sets. Nothing is ever downloaded."""

from zib.logs.catalogue import (
    Check,
    Finding,
    catalogue_rows,
    check,
    check_text,
    info,
    info_text,
    load_frame,
    names,
)
from zib.logs.cprm import frame_cprm, load_cprm
from zib.logs.entry import DataSet
from zib.logs.guess import Guess, guess_columns
from zib.logs.karlan_list import load_karlan_list
from zib.logs.karlan_zinman import load_karlan_zinman
from zib.logs.log import Log, LogBatch, LoggedData
from zib.logs.randhie import load_randhie
from zib.logs.scan import LogScan
from zib.logs.tables import LogError

__all__ = [
    "Check",
    "DataSet",
    "Finding",
    "Guess",
    "Log",
    "LogBatch",
    "LogError",
    "LogScan",
    "LoggedData",
    "catalogue_rows",
    "check",
    "check_text",
    "frame_cprm",
    "guess_columns",
    "info",
    "info_text",
    "load_cprm",
    "load_frame",
    "load_karlan_list",
    "load_karlan_zinman",
    "load_randhie",
    "names",
]
