"""The public conformance suite: what policies, environments and links must keep to.

Use it on your own policy::

    import zib.testing
    zib.testing.check_policy(MyPolicy(level=2.0))
    zib.testing.check_contextual_policy(MyContextualPolicy(level=2.0))

Each check raises an AssertionError that says which promise was broken. For tests with one name per
promise, `POLICY_CHECKS` holds them by name and `policy_checks_of` says which apply to a policy::

    @pytest.mark.parametrize("check", zib.testing.policy_checks_of(MyPolicy(level=2.0)))
    def test_my_policy(check):
        zib.testing.POLICY_CHECKS[check](MyPolicy(level=2.0))
"""

from zib.testing.contextual import (
    CONTEXTUAL_CHECKS,
    check_contextual_policy,
    contextual_checks_of,
)
from zib.testing.environments import check_environment
from zib.testing.links import LINK_CHECKS, check_link
from zib.testing.policies import POLICY_CHECKS, check_policy, policy_checks_of

__all__ = [
    "CONTEXTUAL_CHECKS",
    "LINK_CHECKS",
    "POLICY_CHECKS",
    "check_contextual_policy",
    "check_environment",
    "check_link",
    "check_policy",
    "contextual_checks_of",
    "policy_checks_of",
]
