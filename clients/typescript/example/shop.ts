// A shop that shows each visitor one of six offers and learns which: all that a shop has to write.
//
//     feducb agent init --recipe recipe.json --epsilon 8 --decisions 12000 --season 2m --window 1s > keys.txt
//     feducb agent serve &
//     node dist/example/shop.js http://127.0.0.1:8750 $(awk '/application/ {print $2}' keys.txt) 12000
//
// recipe.json is that of examples/shop. visitors.ts stands for the shop's own visitors.

import { Client } from "../src/client.js"; // "feducb-client", once it is installed
import { arrive, buys } from "./visitors.js";

const [url, key, count] = process.argv.slice(2) as [string, string, string];
const agent = new Client(url, { key });
let [sold, number] = [0, 0];
for await (const visitor of arrive(Number(count), 100)) {
  const decision = await agent.decide({ context: visitor });
  const bought = buys(visitor, decision.action);
  await agent.reward(decision.id, bought ? 1 : 0);
  sold += Number(bought);
  if (++number % 500 === 0) {
    console.log(`${number} visitors; of the last 500, ${sold} bought. Shown: ${decision.action}`);
    sold = 0;
  }
}
