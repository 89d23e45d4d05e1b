// A shop in JavaScript (Node 18 or later, or a browser behind a server of yours):
//   node examples/client.mjs http://127.0.0.1:8080 checkout
// Where the service wants a token it is in the environment variable ZIB_TOKEN. Do not send it to
// browsers: they should ask your server, and that the service.

const AGAIN = new Set([408, 429, 502, 503, 504]);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export class Client {
  constructor(address, bandit, { token, timeout = 10_000, retries = Infinity } = {}) {
    this.base = `${address.replace(/\/+$/, "")}/v1/${encodeURIComponent(bandit)}`;
    this.headers = { "Content-Type": "application/json" };
    if (token) this.headers.Authorization = `Bearer ${token}`;
    Object.assign(this, { timeout, retries });
  }

  // The same key or id again gets the same answer, so a request may be sent until one arrives.
  async post(route, body, timeout = this.timeout) {
    const end = Date.now() + timeout;
    for (let number = 0; ; number++) {
      const last = number === this.retries;
      const left = Math.max(end - Date.now(), 1);
      let problem, asked;
      try {
        const answer = await fetch(`${this.base}/${route}`, {
          method: "POST",
          headers: this.headers,
          body: JSON.stringify(body),
          signal: AbortSignal.timeout(Math.ceil(last ? left : left / 2)),
        });
        const content = await answer.json();
        if (answer.ok) return content;
        problem = Object.assign(new Error(content.error), { status: answer.status });
        asked = 1000 * Number(answer.headers.get("Retry-After") ?? NaN);
      } catch (error) {
        problem = error; // nobody answered, or not in time
      }
      if (problem.status !== undefined && !AGAIN.has(problem.status)) throw problem;
      const pause = Number.isFinite(asked)
        ? asked
        : Math.random() * Math.min(1000, 50 * 2 ** number);
      if (last || Date.now() + pause >= end) throw problem;
      await sleep(pause);
    }
  }

  decide(key, more = {}, timeout) {
    return this.post("decide", { key, ...more }, timeout);
  }

  event(id, decision_id, value, more = {}) {
    return this.post("event", { id, decision_id, value, ...more });
  }

  revise(id, decision_id, value, more = {}) {
    return this.post("revise", { id, decision_id, value, ...more });
  }

  cancel(decision_id) {
    return this.post("cancel", { decision_id });
  }
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const { randomUUID } = await import("node:crypto");
  const [address, bandit] = process.argv.slice(2);
  const client = new Client(address, bandit, { token: process.env.ZIB_TOKEN });
  const key = `request-${randomUUID()}`;
  const decision = await client.decide(key, { unit: "customer-12" }, 500).catch((error) => {
    console.error(`the default is served: ${error.message}`);
    return { arm: "A", kind: "fallback" }; // in no ledger: nothing is reported for it
  });
  console.log(decision.kind, decision.arm, decision.probability);
  if (decision.kind !== "fallback") {
    const order = `order-${randomUUID()}`;
    console.log((await client.event(order, decision.id, 29.9)).status);
    console.log((await client.event(order, decision.id, 29.9)).status);
    console.log((await client.revise(`refund-${order}`, decision.id, 0)).value);
  }
}
