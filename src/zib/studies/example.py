"""The commented example that ``zib simulate --init`` writes."""

EXAMPLE = """\
# A study for `zib simulate`: every policy plays in every environment.
# Look at it without running it:  zib simulate FILE --dry-run
# Paths are relative to the folder this file is in.

name = "Which policy for the newsletter"
about = "Three subject lines; about one recipient in a hundred buys."
horizon = 20_000              # rounds per replication
replications = 50
seed = 0
checkpoints = 200             # rounds at which regret is recorded: how many, or [100, 1000, ...]

# ---------------------------------------------------------------------------------- environments
# `kind` is a public name of zib.env, the other keys are its parameters.

[environments."three subject lines"]
kind = "GaussianMAB"
means = [40.0, 50.0, 40.0]    # mean of the non-zero rewards, per arm
probs = [0.010, 0.012, 0.006] # how often they are not zero
sigma = 12.0

# A setting with a fixed meaning, by its id (see zib.env.list_ids()):
# [environments.paper]
# id = "paper-mab-gaussian-p10-v1"

# Rewards resampled from a log of your own:
# [environments.bootstrap]
# kind = "BootstrapMAB"
# log = { file = "log.csv", arm = "variant", reward = "spent" }

# -------------------------------------------------------------------------------------- policies
# `kind` is a public name of zib.mab (of zib.contextual where environments have features). The
# table's own name stands in figures and tables. A `horizon` that a policy wants and is not given
# is that of the study.

[policies."ZI-TS"]
kind = "ZITS"
sigma = 12.0

[policies."ZI posterior"]
kind = "ZIPosterior"
prior = "learned"

[policies."ZI-UCB"]
kind = "ZIUCB"
tail = { kind = "SubGaussian", sigma = 12.0 }  # parts are tables with a kind of their own

[policies.UCB1]
kind = "UCB1"
scale = 90.0

# [policies."UCB1, discounted"]
# kind = "Discounted"
# spec = { kind = "UCB1", scale = 90.0 }
# half_life = 5_000

# ------------------------------------------------------------------------------------------- run
# Nothing below changes a number.

[run]
backend = "threads"           # serial, threads, processes or dask
# workers = 2                 # all processors by default
# scheduler = "tcp://host:8786"  # of a Dask cluster; without one, a local cluster is made
store = true                  # keep finished blocks and go on with them; or a folder, or false
keep = "runs"                 # "summary" needs no more memory for more replications

[output]
folder = "results/newsletter"
"""
