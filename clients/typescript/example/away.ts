// The service goes away and comes back: what visitors see meanwhile, and what it hears of them later.
// A test kills it and starts it again, whenever this says so by a line, and answers each by a line.

import { createInterface } from "node:readline";

import { Client, type Visitor } from "../src/client.js";

const [url, key, follow] = process.argv.slice(2) as [string, string, string | undefined];
const agent = new Client(url, { key });
const visitor: Visitor = { context: { country: "DE", age: 36 }, ...(follow ? { follow } : {}) };
const default_ = { fallback: follow ?? "gift" };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function tell(what: unknown): Promise<void> {
  console.log(JSON.stringify(what));
  await lines.next();
}
async function tried(call: () => Promise<unknown>): Promise<unknown> {
  return call().catch((error: Error) => `${error.name}: ${error.message}`);
}

const { fallback, action } = await agent.decide(visitor, default_);
const refused = [
  await tried(() => agent.decide({ context: { age: "old" } }, { fallback: "gift" })),
  await tried(() => agent.decide(visitor, { fallback: 3 })),
  await tried(() => agent.decide({ actions: ["none", "gift"] }, { fallback: "bundle" })),
  await tried(() => agent.decide({ actions: [[0.1], [0.2]] }, { fallback: 2 })),
  await tried(() => agent.decideMany([visitor], { fallback: ["gift", "gift"] })),
  await tried(() => agent.decide({ follow: "none" }, { fallback: "gift" })),
  await tried(() => agent.decide(visitor, { fallback: "" })),
];
await tell({ fallback, action, refused });

const shown = await Promise.all([0, 1, 2].map(() => agent.decide(visitor, default_)));
const many = await agent.decideMany([visitor, { ...visitor, id: "ada" }], default_);
await agent.decide({ ...visitor, id: "x".repeat(200) }, default_); // which the service cannot take
const rewards = [await agent.reward("ada", 1), await agent.reward("ada", 0)];
const without = await tried(() => new Client(url, { key, attempts: 1 }).decide(visitor));
const { waiting } = agent.fallbacks;
await tell({ shown, many, rewards, without, waiting });

await new Promise((done) => setTimeout(done, 1000)); // for so long it is not asked again
const again = await agent.decide(visitor, default_);
const told = await agent.reportFallbacks();
const after = await agent.reward("ada", 1);
const { counts } = await agent.status();
await tell({ again, told, waiting: told.waiting, after, counts });
process.exit();
