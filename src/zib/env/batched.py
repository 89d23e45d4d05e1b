"""Decisions that are made many at a time."""

from __future__ import annotations

from typing import Any, ClassVar

from zib.core.spec import whole
from zib.env.around import Around, multi_armed
from zib.env.registry import custom

LARGEST_BATCH = 10_000_000


class Batched(Around, positional=1):
    """Arms that are decided on in batches: no reward of a batch is learned before its end.

    Parameters
    ----------
    env
        A multi-armed environment whose arms do not change, or a generator of such.
    size
        Decisions in a batch. The last batch of a simulation may be shorter.

    Notes
    -----
    The j-th pull of an arm pays the same as in `env`, whoever plays and however large batches are.
    After the last decision of a batch its rewards are learned, in the order of the decisions.
    Within a batch policies decide as in `zib.Bandit.select_many`. With ``size=1`` everything is as
    in `env`.

    Examples
    --------
    >>> import zib
    >>> shop = zib.env.GaussianMAB(means=[20.0, 30.0], probs=[0.03, 0.02], sigma=5.0)
    >>> result = zib.simulate([zib.mab.ZIIMED()], zib.env.Batched(shop, size=50), horizon=1_000,
    ...                       replications=3, progress=False)
    >>> result.regret.shape
    (1, 3, 200)
    """

    batched: ClassVar[bool] = True

    env: Any = custom(multi_armed, allowed="multi-armed environment")
    size: int = whole(low=1, high=LARGEST_BATCH, default=100)
