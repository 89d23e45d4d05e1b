"""Environments: laws of rewards, fixed bandits, and bandits redrawn for every replication."""

from zib.env.generators import (
    PAPER_PROBS,
    Environment,
    RandomMAB,
    from_dict,
    list_ids,
    make,
    register_id,
)
from zib.env.inflated import QuantileTable, ZeroInflated
from zib.env.loan import LoanMarket
from zib.env.mab import MAB, ExponentialMAB, GaussianMAB, MixtureMAB
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
    "Environment",
    "Exponential",
    "ExponentialMAB",
    "Gaussian",
    "GaussianMAB",
    "GaussianMixture",
    "Law",
    "LoanMarket",
    "LogNormal",
    "MixtureMAB",
    "Pareto",
    "QuantileTable",
    "RandomMAB",
    "StudentT",
    "ZeroInflated",
    "from_dict",
    "law_from_dict",
    "list_ids",
    "make",
    "register_id",
]
