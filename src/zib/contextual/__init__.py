"""Contextual bandits. So far the links that models are made of."""

from zib.contextual.link import (
    derivative,
    inverse,
    kappa,
    log_complement,
    log_value,
    register_link,
    value,
)
from zib.contextual.links import Cauchit, CLogLog, Identity, Log, Logit, Probit

__all__ = [
    "CLogLog",
    "Cauchit",
    "Identity",
    "Log",
    "Logit",
    "Probit",
    "derivative",
    "inverse",
    "kappa",
    "log_complement",
    "log_value",
    "register_link",
    "value",
]
