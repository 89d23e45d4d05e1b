"""The former place of what is in `links` now."""

from zib.contextual.links import (
    LINKS as LINKS,
)
from zib.contextual.links import (
    derivative as derivative,
)
from zib.contextual.links import (
    inverse as inverse,
)
from zib.contextual.links import (
    kappa as kappa,
)
from zib.contextual.links import (
    log_complement as log_complement,
)
from zib.contextual.links import (
    log_value as log_value,
)
from zib.contextual.links import (
    register_link as register_link,
)
from zib.contextual.links import (
    smallest_slope as smallest_slope,
)
from zib.contextual.links import (
    value as value,
)
