"""Where a fuzzer begins and how long it goes on: always alike in the suite, anew by `make fuzz`."""

from __future__ import annotations

import os


def seed() -> int:
    """Return the seed: that of ZIB_FUZZ_SEED, or always the same one."""
    return int(os.environ.get("ZIB_FUZZ_SEED", "20250801"))


def seconds(default: float) -> float:
    """Return how long one test may go on: ZIB_FUZZ_SECONDS, or what the test says."""
    return float(os.environ.get("ZIB_FUZZ_SECONDS", default))
