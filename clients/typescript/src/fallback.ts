/** What an application showed while the service was away, kept in memory until that can be said. */

import type { components } from "./api.js";

type Schemas = components["schemas"];
type Visitor = Schemas["DecisionRequest"];
type Outcome = Schemas["Outcome"];

/** The application's own default, since no answer of the service came. No policy chose it. */
export interface Fallback {
  /** Names it, for its reward. */
  id: string;
  /** Of what to show; null if it was named, and only the recipe says in which place it stands. */
  index: number | null;
  /** Its name; null among vectors. */
  action: string | null;
  /** Why there was no answer. */
  reason: string;
  propensity: null;
  estimate: null;
  bound: null;
  fallback: true;
}

/** A visitor with an id, as it is sent. */
export type Asked = Visitor & { id: string };
/** In shadow mode the request, and its reward if that came meanwhile; live neither. */
export interface Kept {
  request: Asked | null;
  reward: number | null;
}

/** What was shown without an answer, and what became of it. */
export class Fallbacks {
  /** How often there was no answer. */
  shown = 0;
  /** How many the service has heard of. */
  reported = 0;
  /** Of these, for how many a decision was made whose window is over: a record of something not shown is in. */
  late = 0;
  /** How many the service did not take. */
  refused = 0;
  /** How many were dropped from a full shelf. */
  lost = 0;
  private readonly kept = new Map<string, Kept>();

  /** @param most so many are kept; of more, the oldest is lost. */
  constructor(readonly most = 10_000) {}

  /** How many the service has not heard of yet. */
  get waiting(): number {
    return this.kept.size;
  }

  /** One more: of a live agent its id alone, in shadow mode the request. */
  keep(asked: Asked): void {
    this.shown++;
    const request = (asked.follow ?? null) === null ? null : asked;
    if (!this.kept.has(asked.id)) this.kept.set(asked.id, { request, reward: null });
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= this.most) break;
      this.kept.delete(oldest);
      this.lost++;
    }
  }

  /** If it still waits. */
  get(id: string): Kept | undefined {
    return this.kept.get(id);
  }

  /** The oldest, all of one kind: up to so many ids alone, or so many requests. */
  oldest(mostIds: number, mostRequests: number): [string, Kept][] {
    const waiting = [...this.kept];
    const live = waiting[0]?.[1].request === null;
    const ofKind = waiting.filter(([, one]) => (one.request === null) === live);
    return ofKind.slice(0, live ? mostIds : mostRequests);
  }

  /** The service has heard of these: what it said of each, null where it refused. */
  settle(outcomes: [string, Outcome | null][]): void {
    for (const [id, outcome] of outcomes) {
      if (!this.kept.delete(id)) continue; // another call was quicker
      if (outcome === null || outcome === "refused") this.refused++;
      else this.reported++;
      if (outcome === "late") this.late++;
    }
  }
}

/** What to show by default, checked against the request before anything is sent. */
export function fallbackFor(given: number | string, asked: Asked): Fallback {
  const follow = asked.follow ?? null;
  if (follow !== null && given !== follow)
    throw new RangeError(
      `fallback is ${given}, expected ${follow}, as in follow: in shadow mode the application shows its own choice`,
    );
  const answer = { id: asked.id, reason: "", propensity: null, estimate: null, bound: null } as const;
  if (!asked.actions) {
    if (typeof given !== "string" || given === "")
      throw new RangeError(`fallback is ${given}, expected a name: the actions are the recipe's`);
    return { ...answer, index: null, action: given, fallback: true };
  }
  const names = asked.actions.map(nameOf);
  const index = typeof given === "string" ? names.indexOf(given) : given;
  if (!Number.isInteger(index) || index < 0 || index >= names.length) {
    const listed = names.filter((one) => one !== null).join(", ") || "an index, among vectors";
    const expected = typeof given === "string" ? `one of the actions: ${listed}` : `an index from 0 to ${names.length - 1}`;
    throw new RangeError(`fallback is ${given}, expected ${expected}`);
  }
  return { ...answer, index, action: names[index] ?? null, fallback: true };
}

function nameOf(action: unknown): string | null {
  if (typeof action === "string") return action;
  const id = Array.isArray(action) ? null : (action as Record<string, unknown>)["id"];
  return typeof id === "string" ? id : null;
}
