/** Visitors in place of real ones, with tastes that the shop does not know; some do not tell their age. */

export interface Visitor {
  [column: string]: unknown;
  country?: string;
  device?: string;
  age?: number;
  returning?: boolean;
  basket?: number;
}

/** So many, one after another. */
export async function* arrive(count: number, perSecond: number): AsyncGenerator<Visitor> {
  for (let one = 0; one < count; one++) {
    await new Promise((done) => setTimeout(done, 1000 / perSecond));
    const visitor: Visitor = {
      country: pick(["DE", "FR", "US", "PT"]), // the recipe has never heard of Portugal
      device: pick(["phone", "desktop"]),
      age: 16 + Math.floor(79 * Math.random()),
      returning: Math.random() < 0.5,
      basket: Math.round(25000 * Math.random()) / 100,
    };
    yield Object.fromEntries(Object.entries(visitor).filter(() => Math.random() < 0.98));
  }
}

/** Whether a visitor buys who is shown this offer. */
export function buys(visitor: Visitor, offer: string | null): boolean {
  const age = (Math.min(Math.max(visitor.age ?? 54, 18), 90) - 54) / 36;
  const basket = (Math.min(visitor.basket ?? 100, 200) - 100) / 100;
  const returning = visitor.returning === undefined ? 0 : visitor.returning ? 1 : -1;
  const taste: Record<string, number> = {
    none: 0,
    free_shipping: 0.05 - 0.15 * basket,
    ten_percent: 0.02 - 0.2 * age,
    gift: 0.02 + 0.2 * age,
    bundle: 0.15 * basket,
    loyalty_points: 0.15 * returning,
  };
  return Math.random() < 0.3 + (visitor.device === "desktop" ? 0.02 : 0) + (taste[String(offer)] ?? 0);
}

function pick<Kind>(some: Kind[]): Kind {
  return some[Math.floor(some.length * Math.random())]!;
}
