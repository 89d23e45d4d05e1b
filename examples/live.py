"""Ten lines that run a durable bandit; run it twice: the second time it goes on."""

import uuid

import zib

with zib.live.Ledger("checkout.db", arms=["A", "B", "C"], window="7d") as ledger:
    for _ in range(100):
        decision = ledger.decide(f"request-{uuid.uuid4()}")  # serve decision.arm
        if uuid.uuid4().int % 20 == 0:  # one in twenty buys
            ledger.event(f"order-{decision.id}", decision.id, 29.90)
    print(ledger.statistics())
