"""A public benchmark: worlds of rewards that are mostly zero, and who is best in them.

`worlds` are fixed and named, for development; `drawn` ones come from a seed that nobody knew before
and are what claims about policies rest on. ``zib arena`` does it all from the command line.

>>> import zib.arena
>>> len(zib.arena.worlds(["plain", "many", "odd"]))
60
"""

from zib.arena.generator import drawn
from zib.arena.outcome import TARGET, Match, Outcome
from zib.arena.play import play
from zib.arena.rivals import DEFAULT, YARDSTICK, Rival, rivals
from zib.arena.world import KINDS, World
from zib.arena.worlds import worlds

__all__ = [
    "DEFAULT",
    "KINDS",
    "TARGET",
    "YARDSTICK",
    "Match",
    "Outcome",
    "Rival",
    "World",
    "drawn",
    "play",
    "rivals",
    "worlds",
]
