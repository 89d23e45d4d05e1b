"""Environments: laws of rewards, fixed bandits, and bandits redrawn for every replication."""

from importlib import import_module as _import_module

from zib.env.contextual import ContextBlock, ContextualGLM
from zib.env.contextual_drift import DriftingActions, DriftingRun
from zib.env.contextual_random import DisjointContextual, DisjointGLM, RandomContextual
from zib.env.drift import DriftingMAB, MovingMAB, PathMAB, Paths, RoundBlock
from zib.env.empirical import Empirical
from zib.env.generators import (
    PAPER_PROBS,
    PAPER_SPARSITIES,
    ContextualEnvironment,
    Environment,
    RandomMAB,
    from_dict,
    list_ids,
    make,
    register_id,
)
from zib.env.inflated import QuantileTable, ZeroInflated
from zib.env.logged import BootstrapContextual, BootstrapMAB
from zib.env.mab import MAB, ExponentialMAB, GaussianMAB, MixtureMAB
from zib.env.outcomes import Constant, Mixture, OutcomesMAB
from zib.env.rewards import (
    Exponential,
    Gaussian,
    GaussianMixture,
    Law,
    LogNormal,
    Pareto,
    StudentT,
    law_from_dict,
)

__all__ = [
    "MAB",
    "PAPER_PROBS",
    "PAPER_SPARSITIES",
    "BootstrapContextual",
    "BootstrapMAB",
    "Constant",
    "ContextBlock",
    "ContextualEnvironment",
    "ContextualGLM",
    "DisjointContextual",
    "DisjointGLM",
    "DriftingActions",
    "DriftingMAB",
    "DriftingRun",
    "Empirical",
    "Environment",
    "Exponential",
    "ExponentialMAB",
    "Gaussian",
    "GaussianMAB",
    "GaussianMixture",
    "Law",
    "LogNormal",
    "Mixture",
    "MixtureMAB",
    "MovingMAB",
    "OutcomesMAB",
    "Pareto",
    "PathMAB",
    "Paths",
    "QuantileTable",
    "RandomContextual",
    "RandomMAB",
    "RoundBlock",
    "StudentT",
    "ZeroInflated",
    "from_dict",
    "law_from_dict",
    "list_ids",
    "make",
    "register_id",
]

_IN_CASES = ("LoanMarket", "LoanPricing", "LoanRecords", "synthetic_loan_records")


def __getattr__(name: str) -> object:
    # The loan market has a room of its own; its names stay here for one version.
    if name in _IN_CASES:
        return getattr(_import_module("zib.cases.loan"), name)
    raise AttributeError(f"module 'zib.env' has no attribute {name!r}")
