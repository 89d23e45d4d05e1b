-- The log (decision, event) and what is folded from it (arm_sum, waiting, converted).
-- Times are whole microseconds since 1970. Counters are kept per worker, so that no two
-- processes write one row; only their sums mean something.

CREATE TABLE bandit (
    id BIGINT PRIMARY KEY,
    name {name} NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    shadow BIGINT -- number of the arm that is served whatever the policy wants
);

CREATE TABLE arm (
    bandit BIGINT NOT NULL,
    number BIGINT NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL,
    added_at BIGINT NOT NULL,
    PRIMARY KEY (bandit, number)
);

CREATE TABLE model (
    bandit BIGINT NOT NULL,
    version BIGINT NOT NULL,
    made_at BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (bandit, version)
);

CREATE TABLE decision (
    seq {serial},
    id {name} NOT NULL UNIQUE,
    bandit BIGINT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    unit TEXT,
    arm BIGINT NOT NULL,
    wanted BIGINT NOT NULL,
    probability DOUBLE PRECISION NOT NULL,
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    eligible TEXT,
    context TEXT,
    entries BIGINT NOT NULL,
    value DOUBLE PRECISION,
    known BIGINT,
    cancelled BIGINT NOT NULL
);

CREATE TABLE event (
    bandit BIGINT NOT NULL,
    id {name} NOT NULL,
    decision {name} NOT NULL,
    kind BIGINT NOT NULL,
    value DOUBLE PRECISION,
    at BIGINT NOT NULL,
    received BIGINT NOT NULL,
    parked BIGINT NOT NULL,
    PRIMARY KEY (bandit, id)
);

CREATE INDEX event_of_decision ON event (decision);
CREATE INDEX event_parked ON event (bandit, decision) WHERE parked = 1;

CREATE TABLE arm_sum (
    bandit BIGINT NOT NULL,
    arm BIGINT NOT NULL,
    worker BIGINT NOT NULL,
    nonzero BIGINT NOT NULL,
    zero BIGINT NOT NULL,
    positive BIGINT NOT NULL,
    total DOUBLE PRECISION NOT NULL,
    total_rest DOUBLE PRECISION NOT NULL,
    squares DOUBLE PRECISION NOT NULL,
    squares_rest DOUBLE PRECISION NOT NULL,
    log_total DOUBLE PRECISION NOT NULL,
    log_total_rest DOUBLE PRECISION NOT NULL,
    log_squares DOUBLE PRECISION NOT NULL,
    log_squares_rest DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (bandit, arm, worker)
);

CREATE TABLE waiting (
    bandit BIGINT NOT NULL,
    arm BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    worker BIGINT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (bandit, arm, bucket, worker)
);

CREATE TABLE converted (
    bandit BIGINT NOT NULL,
    arm BIGINT NOT NULL,
    bucket BIGINT NOT NULL,
    bin BIGINT NOT NULL,
    worker BIGINT NOT NULL,
    n BIGINT NOT NULL,
    total DOUBLE PRECISION NOT NULL,
    squares DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (bandit, arm, bucket, bin, worker)
);

-- Decisions of contextual bandits that are new or have changed since the leader looked: how often.
CREATE TABLE changed (
    bandit BIGINT NOT NULL,
    decision TEXT NOT NULL,
    worker BIGINT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (bandit, decision, worker)
);

CREATE TABLE counter (
    bandit BIGINT NOT NULL,
    name {name} NOT NULL,
    worker BIGINT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (bandit, name, worker)
);

CREATE TABLE audit (
    seq {serial},
    bandit BIGINT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL
);
