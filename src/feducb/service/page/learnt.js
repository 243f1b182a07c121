// What was learnt, on an agent's page: asked for when the model in use has changed. Uses the words and elements of page.js.
"use strict";

const MOST_COEFFICIENTS = 300;
let learnt = null; // the newest answer of /v1/model
let learntMark = ""; // for which it was asked
let learntAsking = false;
let learntDigits = 3;

const learntCard = () => hidden("w12", "learnt-card", "h-learnt", "What was learnt",
  h("p", { class: "said", id: "learnt-said" }),
  h("div", { class: "learnt" }, table("t-actions", "Actions for a typical visitor", ["Action", "Shown", "Expected reward", "Over releases"])),
  h("p", { class: "said", id: "learnt-visitor" }),
  h("details", {}, h("summary", {}, "What each term adds, in words"),
    h("p", { class: "said" }, "In units of rewards. Terms that are always there together, such as a level for all and one for each action, are told apart by their sum alone: their own intervals stay wide."),
    table("t-terms", "Coefficients of the recipe’s terms", ["Effect of", "Adds"])),
  h("details", {}, h("summary", {}, "Releases as a table"), table("t-past", "What each release told", ["Release, action", "Shown", "Expected reward", "Read"])));

// As many digits as the range of rewards asks for: of rewards from 0 to 1 three, and two for the ends of intervals.
const digitsOf = ([low, high]) => Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(high - low))));
const figure = (value, digits) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
const signed = (value, digits) => (value < 0 ? "" : "+") + figure(value, digits);
const between = (one, write) => `${write(one.low, learntDigits - 1)} to ${write(one.high, learntDigits - 1)}`;
// A number, and below it the interval that it is in.
const expected = (one, write) => (one.estimate === null ? "–" : { text: write(one.estimate, learntDigits), note: between(one, write) });
function percent(one) {
  if (one.share === null) return "–";
  const digits = one.share_high - one.share_low < 0.02 ? 1 : 0, write = (value) => (100 * value).toFixed(digits);
  return { text: `${write(one.share)} %`, note: `${write(one.share_low)} to ${write(one.share_high)}` };
}

// Estimate and interval of one action over all releases that were read. All actions are drawn to the same scale: that
// of all estimates and of the newest intervals. Wider ones of the past are cut off.
function spark(points, [low, high], name) {
  const wide = 132, tall = 44, edge = 4;
  const x = (place) => (points.length < 2 ? wide / 2 : edge + (place / (points.length - 1)) * (wide - 2 * edge));
  const y = (value) => tall - edge - ((value - low) / (high - low || 1)) * (tall - 2 * edge);
  const first = points[0], last = points[points.length - 1];
  const drawing = s("svg", { class: "spark", viewBox: `0 0 ${wide} ${tall}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${name}: ${counted(points.length, "release")}, expected reward from ${figure(first.estimate, learntDigits)} to ${figure(last.estimate, learntDigits)}, interval from ${between(first, figure)} to ${between(last, figure)}` });
  const upper = points.map((one, place) => `${x(place)},${y(one.high)}`), lower = points.map((one, place) => `${x(place)},${y(one.low)}`);
  if (points.length > 1) {
    drawing.append(s("polygon", { class: "band", points: upper.concat(lower.reverse()).join(" ") }),
      s("polyline", { class: "line", points: points.map((one, place) => `${x(place)},${y(one.estimate)}`).join(" ") }));
  } else {
    drawing.append(s("line", { class: "grid", x1: x(0), x2: x(0), y1: y(first.low), y2: y(first.high) }));
  }
  drawing.append(s("circle", { class: "dot", cx: x(points.length - 1), cy: y(last.estimate), r: 3 }));
  return drawing;
}

// Once for every model: the stream says when there is another, and the answer is too long for each of its events.
async function followLearnt(it) {
  $("learnt-card").hidden = !it.recipe;
  const mark = JSON.stringify([it.name, it.model, it.learning, it.recipe && it.recipe.fingerprint, (it.counts || {}).own_readings]);
  if (!it.recipe || learntAsking || mark === learntMark) return;
  learntAsking = true;
  let answered = false;
  try {
    const answer = await fetch("/v1/model", { cache: "no-store" });
    if (answer.ok) {
      learnt = await answer.json();
      learntMark = mark;
      answered = true;
      showLearnt();
    }
  } catch (error) { /* it is away: asked again with the next event */ }
  learntAsking = false;
  if (answered && told && told !== it) followLearnt(told); // it may have moved on meanwhile
}
function showLearnt() {
  if (!learnt || !$("learnt-card")) return;
  const it = learnt, past = it.history, sure = Math.round(100 * it.confidence);
  learntDigits = Math.max(1, digitsOf(it.reward_range));
  const of = it.groups > 1 ? ` Of the first of ${it.groups} groups of visitors.` : "";
  say("learnt-said", it.from
    ? `${it.says} Intervals hold, all of them together and at all releases, with a chance of ${sure} % at least; those of shares are 95 %.${of}`
    : `${it.says}${of}`);
  const columns = Object.entries(it.visitor).map(([name, value]) => `${name}: ${value}`);
  say("learnt-visitor", columns.length ? `Expected for a typical visitor, known from the recipe alone: ${columns.join("; ")}. “Shown” is of all records in the sum.` : "“Shown” is of all records in the sum.");
  const known = past.flatMap((point) => point.actions).concat(it.actions).filter((one) => one.estimate !== null);
  const newest = it.actions.filter((one) => one.estimate !== null);
  const ends = [...known.map((one) => one.estimate), ...newest.flatMap((one) => [one.low, one.high])];
  const scale = [Math.min(...ends), Math.max(...ends)];
  fill("t-actions", it.actions.map((one, place) => {
    const points = past.map((point) => point.actions[place]).filter((point) => point && point.id === one.id && point.estimate !== null);
    return [one.retired ? `${one.id} (retired)` : one.id, percent(one), expected(one, figure), points.length ? { spark: [points, scale, one.id] } : "–"];
  }), it.from ? "Every request says its own" : "None is declared");
  const all = it.terms.flatMap((term) => term.coefficients);
  const rows = all.slice(0, MOST_COEFFICIENTS).map((one) => [one.words, expected(one, signed)]);
  if (all.length > rows.length) rows.push([`and ${count(all.length - rows.length)} more: GET /v1/model`, ""]);
  fill("t-terms", rows, "Nothing yet");
  const stamp = told && told.curve && told.curve.width < 60 ? exact : short;
  fill("t-past", [...past].reverse().slice(0, 50).flatMap((point) => point.actions.map((one) =>
    [`${point.number}, ${one.id}`, percent(one), expected(one, figure), stamp.format(point.at * 1000)])).slice(0, MOST_COEFFICIENTS), "Nothing yet");
}
