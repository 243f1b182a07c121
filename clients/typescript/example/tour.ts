// Every call once, against a running agent of examples/shop whose key may do everything; the test reads what it says.

import { Client, ServiceError, type Visitor } from "../src/client.js";

const [url, key] = process.argv.slice(2) as [string, string];
const agent = new Client(url, { key });
const ada: Visitor = { id: "ada", context: { country: "DE", age: 36, returning: true } };
const first = await agent.decide(ada);
const again = await agent.decide(ada);
const warned: string[] = [];
console.warn = (text: string) => warned.push(text);
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
const same = ["new"]; // twice, but not within itself
const circle: Record<string, unknown> = { id: "gift", tags: same, others: same };
circle["sizes"] = [1, circle];
const around: Visitor = { context: { age: 36 } };
around.context!["visitor"] = around;
const odd: Visitor[] = [
  ...[{ context: { age: NaN } }, { actions: ["none", { id: "gift", price: -Infinity }] }, { follow_propensity: NaN }],
  ...[big, { actions: ["none", circle] }, around],
];
const unsaidToo = await Promise.all(
  odd.map((one) => agent.decide(one, { fallback: "none" }).catch((error: Error) => `${error.name}: ${error.message}`)),
);
const cut = await agent.decideMany([{ context: { country: "DE \u{1f600}".slice(0, -1) } }, { context: {} }]);
const prefixed = await new Client(`${url}/shop/`, { key }).status().catch((error: ServiceError) => error.status);
const learnt = (await agent.model())["from"];
const { counts } = (await agent.status()) as { counts: Record<string, number> };
const seasons = (await agent.privacy())["seasons"] as unknown[];
const answers = { first, again, refused, unsaid, unsaidToo, cut: cut.length, prefixed, warned, outcomes, problems, learnt };
console.log(JSON.stringify({ ...answers, counts, seasons: seasons.length }));
