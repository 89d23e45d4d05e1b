-- Sums by the time of the decision, for the page: what was decided, and what it brought.

-- Among how many arms it was drawn; 0: not known, as it was made before this was kept.
ALTER TABLE decision ADD COLUMN choices BIGINT NOT NULL DEFAULT 0;

-- See zib.live.history. Those of a period are kept per worker; old periods are put together.
CREATE TABLE history (
    bandit BIGINT NOT NULL,
    at BIGINT NOT NULL,
    arm BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    worker BIGINT NOT NULL,
    n BIGINT NOT NULL,
    nonzero BIGINT NOT NULL,
    total DOUBLE PRECISION NOT NULL,
    squares DOUBLE PRECISION NOT NULL,
    score DOUBLE PRECISION NOT NULL,
    score_squares DOUBLE PRECISION NOT NULL,
    expected DOUBLE PRECISION NOT NULL,
    variance DOUBLE PRECISION NOT NULL,
    even DOUBLE PRECISION NOT NULL,
    inverse DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (bandit, at, arm, kind, worker)
);

-- When a worker last wrote a decision (its time) or an event (when it became known).
CREATE TABLE latest (
    bandit BIGINT NOT NULL,
    name {name} NOT NULL,
    worker BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (bandit, name, worker)
);

INSERT INTO latest SELECT bandit, 'decision', 0, MAX(at) FROM decision GROUP BY bandit;
INSERT INTO latest SELECT bandit, 'event', 0, MAX(received) FROM event WHERE kind = 0 GROUP BY bandit;

-- What is there already, by the hour. Kind 3 are decisions of the policy of which it is not known
-- among how many arms they were drawn.
INSERT INTO history
SELECT bandit, at, arm, kind, 0, COUNT(*), SUM(CASE WHEN amount <> 0.0 THEN 1 ELSE 0 END),
    SUM(amount), SUM(amount * amount), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
FROM (
    SELECT d.bandit AS bandit, d.at - d.at % 3600000000 AS at, d.arm AS arm,
        CASE WHEN d.kind = 0 THEN 3 ELSE d.kind END AS kind,
        COALESCE(d.value - {inflated}, 0.0) AS amount
    FROM decision d JOIN bandit b ON b.id = d.bandit WHERE d.cancelled = 0
) AS made
GROUP BY bandit, at, arm, kind;
