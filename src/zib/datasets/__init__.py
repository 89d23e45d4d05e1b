"""Logs of one's own and public data sets. Nothing is ever downloaded."""

from zib.datasets.log import Log, LogBatch, LoggedData
from zib.datasets.scan import LogScan
from zib.datasets.tables import LogError

__all__ = ["Log", "LogBatch", "LogError", "LogScan", "LoggedData"]
