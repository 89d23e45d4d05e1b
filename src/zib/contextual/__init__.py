"""Contextual bandits: links, models, policies."""

from zib.contextual.adaptive import Adaptive
from zib.contextual.baselines import Integrated, Naive
from zib.contextual.by_category import ByCategory
from zib.contextual.components import ComponentModel, GLMModel
from zib.contextual.encode import disjoint, hybrid, shared
from zib.contextual.joint import JointUCB, LaplaceTS
from zib.contextual.links import (
    Cauchit,
    CLogLog,
    Identity,
    Log,
    Logit,
    Probit,
    StandardLink,
    derivative,
    inverse,
    kappa,
    log_complement,
    log_value,
    register_link,
    value,
)
from zib.contextual.models import Huber, LeastSquares, MedianOfMeans, Ridge
from zib.contextual.paper import ZITS, ZIUCB
from zib.contextual.per_arm import Disjoint
from zib.contextual.policy import register_policy
from zib.contextual.refitted import SklearnModel, UserModel
from zib.contextual.template import Template

__all__ = [
    "ZITS",
    "ZIUCB",
    "Adaptive",
    "ByCategory",
    "CLogLog",
    "Cauchit",
    "ComponentModel",
    "Disjoint",
    "GLMModel",
    "Huber",
    "Identity",
    "Integrated",
    "JointUCB",
    "LaplaceTS",
    "LeastSquares",
    "Log",
    "Logit",
    "MedianOfMeans",
    "Naive",
    "Probit",
    "Ridge",
    "SklearnModel",
    "StandardLink",
    "Template",
    "UserModel",
    "derivative",
    "disjoint",
    "hybrid",
    "inverse",
    "kappa",
    "log_complement",
    "log_value",
    "register_link",
    "register_policy",
    "shared",
    "value",
]
