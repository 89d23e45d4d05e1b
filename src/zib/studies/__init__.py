"""Studies described by a file: environments, policies, horizon, replications, seed, outputs.

>>> import zib.studies
>>> study = zib.studies.parse(zib.studies.EXAMPLE, "study.toml")
>>> study.name, study.horizon
('Which policy for the newsletter', 20000)
"""

from zib.studies.build import StudyError
from zib.studies.play import Estimate, Line, Outcome, Played, estimate, run
from zib.studies.report import write
from zib.studies.study import EXAMPLE, Case, How, Study, parse, read

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
