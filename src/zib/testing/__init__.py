"""The public conformance suite: what policies, environments and links must keep to.

Use it on your own policy::

    import zib.testing
    zib.testing.check_policy(MyPolicy(level=2.0))
    zib.testing.check_contextual_policy(MyContextualPolicy(level=2.0))

Each check raises an AssertionError that says which promise was broken.
"""

from zib.testing.contextual import (
    CONTEXTUAL_CHECKS,
    check_contextual_policy,
    contextual_checks_of,
)
from zib.testing.environments import check_environment
from zib.testing.links import LINK_CHECKS, check_link
from zib.testing.policies import check_policy

__all__ = [
    "CONTEXTUAL_CHECKS",
    "LINK_CHECKS",
    "check_contextual_policy",
    "check_environment",
    "check_link",
    "check_policy",
    "contextual_checks_of",
]
