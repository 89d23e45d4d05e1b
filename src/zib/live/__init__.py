"""Decisions whose reward comes later, or never: a durable ledger of what was decided."""

from zib.live.answers import ConflictError, Decision, LedgerError, Parked, Receipt
from zib.live.ledger import Ledger
from zib.live.outcome import Outcome

__all__ = ["ConflictError", "Decision", "Ledger", "LedgerError", "Outcome", "Parked", "Receipt"]
