"""Policies in use on live decisions: `Bandit` and `ContextualBandit`."""

from zib.core.saved import SavedStateError
from zib.online.allocation import GuardRails
from zib.online.bandit import ArmMeans, Bandit
from zib.online.base import Propensities
from zib.online.contextual import ContextualBandit, Prediction

__all__ = [
    "ArmMeans",
    "Bandit",
    "ContextualBandit",
    "GuardRails",
    "Prediction",
    "Propensities",
    "SavedStateError",
]
