"""Policies in use on live decisions: `Bandit` and `ContextualBandit`."""

from zib.online.bandit import ArmMeans, Bandit
from zib.online.base import Propensities, SavedStateError
from zib.online.contextual import ContextualBandit, Prediction

__all__ = [
    "ArmMeans",
    "Bandit",
    "ContextualBandit",
    "Prediction",
    "Propensities",
    "SavedStateError",
]
