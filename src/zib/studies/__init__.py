"""Studies described by a file: environments, policies, horizon, replications, seed, outputs.

>>> import zib.studies
>>> study = zib.studies.parse(zib.studies.EXAMPLE, "study.toml")
>>> study.name, study.horizon
('Which policy for the newsletter', 20000)
"""

from zib.studies.catalogue import StudyError
from zib.studies.dry_run import Estimate, Line, estimate
from zib.studies.example import EXAMPLE
from zib.studies.outcome import Outcome, Played, run
from zib.studies.report import write
from zib.studies.study import Case, How, Study, parse, read

__all__ = [
    "EXAMPLE",
    "Case",
    "Estimate",
    "How",
    "Line",
    "Outcome",
    "Played",
    "Study",
    "StudyError",
    "estimate",
    "parse",
    "read",
    "run",
    "write",
]
