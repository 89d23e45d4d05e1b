"""Bounds, sizes and regret curves for zero-inflated rewards, vectorised over NumPy inputs."""

from zib.theory.anticoncentration import (
    beta_tail,
    gaussian_beta_tail,
)
from zib.theory.bernoulli import (
    bernoulli_lower,
    bernoulli_upper,
    hoeffding_radius,
    kl_lower,
    kl_upper,
)
from zib.theory.contextual import (
    contextual_optimism,
    contextual_radius,
    contextual_random_period,
    contextual_regret_bound,
    contextual_spread,
    contextual_thompson_rate,
)
from zib.theory.delay import (
    delayed_level,
    delayed_regret_bound,
    poisson_kl_upper,
)
from zib.theory.divergence import (
    divergence_to,
)
from zib.theory.joint import (
    joint_kl_level,
    joint_kl_lower,
    joint_kl_upper,
)
from zib.theory.means import (
    given_count_radius,
    subexponential_radius,
    trimmed_count_radius,
    trimmed_mean,
    trimmed_radius,
    trimming_factor,
)
from zib.theory.outcomes import (
    outcome_kl_upper,
)
from zib.theory.products import (
    error_share,
    product_lower,
    product_upper,
    unseen_upper,
)
from zib.theory.rates import (
    minimax_ratio,
    thompson_regret_rate,
)
from zib.theory.regret import (
    heavy_tail_minimax_bound,
    heavy_tail_regret_bound,
    light_tail_minimax_bound,
    light_tail_regret_bound,
    lower_bound,
    printed_lower_bound,
    rare_arm_ratio,
    rare_arm_regret,
)
from zib.theory.sizes import (
    exponential_subexponential_size,
    gamma_subexponential_size,
    product_subexponential_size,
    product_variance_proxy,
    product_variance_proxy_gradient,
)
from zib.theory.subweibull import (
    subweibull_constants,
    subweibull_radius,
    subweibull_size,
    zi_subweibull_min_n,
    zi_subweibull_radius,
)

__all__ = [
    "bernoulli_lower",
    "bernoulli_upper",
    "beta_tail",
    "contextual_optimism",
    "contextual_radius",
    "contextual_random_period",
    "contextual_regret_bound",
    "contextual_spread",
    "contextual_thompson_rate",
    "delayed_level",
    "delayed_regret_bound",
    "divergence_to",
    "error_share",
    "exponential_subexponential_size",
    "gamma_subexponential_size",
    "gaussian_beta_tail",
    "given_count_radius",
    "heavy_tail_minimax_bound",
    "heavy_tail_regret_bound",
    "hoeffding_radius",
    "joint_kl_level",
    "joint_kl_lower",
    "joint_kl_upper",
    "kl_lower",
    "kl_upper",
    "light_tail_minimax_bound",
    "light_tail_regret_bound",
    "lower_bound",
    "minimax_ratio",
    "outcome_kl_upper",
    "poisson_kl_upper",
    "printed_lower_bound",
    "product_lower",
    "product_subexponential_size",
    "product_upper",
    "product_variance_proxy",
    "product_variance_proxy_gradient",
    "rare_arm_ratio",
    "rare_arm_regret",
    "subexponential_radius",
    "subweibull_constants",
    "subweibull_radius",
    "subweibull_size",
    "thompson_regret_rate",
    "trimmed_count_radius",
    "trimmed_mean",
    "trimmed_radius",
    "trimming_factor",
    "unseen_upper",
    "zi_subweibull_min_n",
    "zi_subweibull_radius",
]
