"""A shop that lets the service decide:  python examples/client.py http://127.0.0.1:8080 checkout.

The token, where the service wants one, is in the environment variable ZIB_TOKEN.
"""

import os
import random
import sys
import uuid

import zib

address, bandit = sys.argv[1:3]
with zib.live.Client(address, bandit, token=os.environ.get("ZIB_TOKEN")) as client:
    for _ in range(100):
        # A page does not wait for long: without an answer in time it shows the arm "A".
        decision = client.within(0.5).decide(f"request-{uuid.uuid4()}", fallback="A")
        if random.random() < 0.05:  # one in twenty buys; an order may be reported with patience
            order = f"order-{uuid.uuid4()}"
            receipt = client.within(60).event(order, decision.id, 29.90)
            print(order, decision.arm, receipt.status)
