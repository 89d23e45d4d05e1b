"""What one replication of one policy leaves behind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Run(NamedTuple):
    """Regret and reward at the checkpoints, pulls of every arm at the end."""

    regret: NDArray[np.float64]
    reward: NDArray[np.float64]
    pulls: NDArray[np.int64]
