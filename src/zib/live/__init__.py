"""Decisions whose reward comes later, or never: a durable ledger of what was decided."""

from zib.live.answers import (
    Change,
    ConflictError,
    Decision,
    LedgerError,
    Parked,
    Receipt,
    Refused,
    Unavailable,
)
from zib.live.client import AsyncClient, Client
from zib.live.ledger import Ledger
from zib.live.outcome import Outcome

__all__ = [
    "AsyncClient",
    "Change",
    "Client",
    "ConflictError",
    "Decision",
    "Ledger",
    "LedgerError",
    "Outcome",
    "Parked",
    "Receipt",
    "Refused",
    "Unavailable",
]
