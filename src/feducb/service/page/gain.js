// What the others are worth to this agent, and its reward before and now. Uses the words and elements of page.js.
"use strict";

const LANES = {
  federated: ["line", "decided as the agent decides"],
  alone: ["alone-line", "as it would alone, by its own records"],
  uniform: ["base-line", "by uniform choice"],
};
const gainCard = () => hidden("w12", "gain-card", "h-gain", "What the others are worth to you",
  h("p", { class: "said", id: "gain-said" }), h("div", { class: "chart", id: "gain" }),
  behind(table("t-gain", "Mean reward by lane", ["Lane", "Share", "Visitors", "Mean reward", "From", "To"])));

// Intervals side by side on one scale: a bar from end to end, and the estimate on it.
function drawGain(box, lanes, [least, most]) {
  const known = Object.entries(lanes).filter(([, one]) => one.mean !== null);
  const wide = Math.max(260, box.clientWidth), row = 34, top = 6, tall = top + row * known.length + 26, left = 86, right = 14;
  let low = Math.min(...known.map(([, one]) => one.low)), high = Math.max(...known.map(([, one]) => one.high));
  const room = Math.max(0.05 * (high - low), 0.005 * (most - least));
  low = Math.max(least, low - room);
  high = Math.min(most, high + room);
  const x = (value) => left + ((value - low) / (high - low)) * (wide - left - right);
  const said = known.map(([name, one]) => `${name} ${one.mean.toFixed(3)}, from ${one.low.toFixed(3)} to ${one.high.toFixed(3)}`).join("; ");
  const drawing = s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `Mean reward by lane: ${said}.` });
  for (const one of ticks(low, high, Math.max(2, Math.min(6, wide / 130)))) {
    drawing.append(s("line", { class: "grid", x1: x(one), x2: x(one), y1: top, y2: tall - 24 }),
      s("text", { x: x(one), y: tall - 8, "text-anchor": "middle" }, String(+one.toPrecision(4))));
  }
  known.forEach(([name, one], place) => {
    const y = top + row * place + row / 2, kind = LANES[name][0].replace("line", "");
    drawing.append(s("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, name),
      s("rect", { class: kind + "band lane", x: x(one.low), y: y - 7, width: Math.max(2, x(one.high) - x(one.low)), height: 14, rx: 3 }),
      s("circle", { class: kind + "dot", cx: x(one.mean), cy: y, r: 4.5 }, s("title", {}, LANES[name][1])));
  });
  box.replaceChildren(drawing);
}
const plusMinus = (one) => `${one.mean.toFixed(3)} ± ${Math.max(one.high - one.mean, one.mean - one.low).toFixed(3)}`;
function sayGain(it) {
  const gain = it.gain || { visits: 0, lanes: {} }, found = gain.difference;
  const several = Object.keys(gain.lanes).length > 1;
  $("gain-card").hidden = !gain.visits || !several;
  if (!gain.visits || !several) return;
  let said = Object.entries(gain.lanes).map(([name, one]) => `${name} ${plusMinus(one)}`).join(", ") + ". ";
  if (found) {
    const sure = found.low > 0 ? "more than alone, for sure" : found.high < 0 ? "less than alone, for sure" : "not yet told from alone";
    said += `Federated less alone: ${plusMinus(found)}, ${sure}. Holding ${(100 * gain.lanes.alone.share).toFixed(0)} % out costs ${gain.costs[0].toPrecision(2)} to ${gain.costs[1].toPrecision(2)} per visitor. `;
    if (!it.own) said += "Alone here learns from the visitors who are held out, and no others. ";
  }
  say("gain-said", said + "Each interval holds with 95 % however often you look. Raw numbers of this season, for you alone: they do not leave.");
  fill("t-gain", Object.entries(gain.lanes).map(([name, one]) => [name, `${(100 * one.share).toFixed(1)} %`, count(one.visits), one.mean.toFixed(4), one.low.toFixed(4), one.high.toFixed(4)]), "Nothing yet");
}
function sayBeforeAndNow(smooth) {
  if (smooth.length < 2) return "";
  const before = smooth[0], after = smooth[smooth.length - 1];
  return `Now ${mean(after.value, after.value_error)} (the newest ${counted(after.settled, "decision")}); before, ${mean(before.value, before.value_error)} (the first ${count(before.settled)}). `;
}
