/** What JSON would change without a word is refused or replaced before it is sent. */

/**
 * The same value, as JSON can say it.
 *
 * @throws RangeError naming the place, such as `context.age`, of a number that JSON would make null: a missing value.
 */
export function sayable<Value>(value: Value, place = ""): Value {
  if (typeof value === "number" && !Number.isFinite(value))
    throw new RangeError(`${place} is ${value}, expected a finite number`);
  // Half a character, as of a text that was cut off: no JSON has it.
  if (typeof value === "string") return value.replace(/\p{Surrogate}/gu, "\ufffd") as Value;
  if (typeof value !== "object" || value === null || "toJSON" in value) return value;
  if (Array.isArray(value)) return value.map((one, index) => sayable(one, `${place}[${index}]`)) as Value;
  const within = place && `${place}.`;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, sayable(one, within + name)])) as Value;
}
