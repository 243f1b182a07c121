// Every call once, against a running agent of examples/shop whose key may do everything; the test reads what it says.

import { Client, ServiceError, type Visitor } from "../src/client.js";

const [url, key] = process.argv.slice(2) as [string, string];
const agent = new Client(url, { key });
const ada: Visitor = { id: "ada", context: { country: "DE", age: 36, returning: true } };
const first = await agent.decide(ada);
const again = await agent.decide(ada);
const [one, refused] = await agent.decideMany([{ context: {} }, { context: { age: "old" } }]);
const outcomes = [
  await agent.reward(first.id, 1),
  ...(await agent.rewards([{ id: "nobody", value: 0 }, { id: first.id, value: NaN }, { id: first.id, value: 0 }])),
  await agent.discard(one!.id),
];
const problems: unknown[] = [];
for (const call of [
  () => agent.decide({ context: { age: "old" } }),
  () => new Client(url, { key: "wrong" }).status(),
  () => new Client("http://127.0.0.1:9", { key, attempts: 2 }).decide(),
]) {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    problems.push([error.status, error.message]);
  }
}
const big: Visitor = { context: { age: 36n } }; // which JSON cannot say: no absence, and no default
const unsaid = await agent.decide(big, { fallback: "none" }).catch((error: Error) => error.name);
const learnt = (await agent.model())["from"];
const { counts } = (await agent.status()) as { counts: Record<string, number> };
const seasons = (await agent.privacy())["seasons"] as unknown[];
console.log(JSON.stringify({ first, again, refused, unsaid, outcomes, problems, counts, learnt, seasons: seasons.length }));
