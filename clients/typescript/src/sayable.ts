/** What JSON would change without a word is refused or replaced before it is sent. */

/**
 * The same value, as JSON can say it.
 *
 * @throws RangeError naming the place, such as `context.age`, of a number that JSON would make null: a missing value.
 * @throws TypeError naming it, of what JSON cannot say: a bigint, or an object within itself.
 */
export function sayable<Value>(value: Value, place = "", around: object[] = []): Value {
  if (typeof value === "bigint" && !("toJSON" in BigInt.prototype))
    throw new TypeError(`${place} is ${value}n, a bigint, expected a number or a text`);
  if (typeof value === "number" && !Number.isFinite(value))
    throw new RangeError(`${place} is ${value}, expected a finite number`);
  // Half a character, as of a text that was cut off: no JSON has it.
  if (typeof value === "string") return value.replace(/\p{Surrogate}/gu, "\ufffd") as Value;
  if (typeof value !== "object" || value === null || "toJSON" in value) return value;
  if (around.includes(value)) throw new TypeError(`${place} is one of the objects around it, expected no circle`);
  const inside = [...around, value];
  if (Array.isArray(value)) return value.map((one, index) => sayable(one, `${place}[${index}]`, inside)) as Value;
  const within = place && `${place}.`;
  const said = Object.entries(value).map(([name, one]) => [name, sayable(one, within + name, inside)]);
  return Object.fromEntries(said) as Value;
}
