// One page for agents and controllers: log in, follow /v1/events, draw. Nothing here changes anything at the service.
"use strict";

const $ = (id) => document.getElementById(id);
const content = $("content");
let key = null; // while this tab is open: a restarted service has forgotten its sessions
let told = null; // the newest snapshot
let ahead = 0; // the service's clock minus this one, in seconds
let drawn = null; // the kind whose skeleton stands

// ---------------------------------------------------------------- words

const whole = new Intl.NumberFormat("en");
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const short = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
const mean = (value, error) =>
  value === null || value === undefined ? "–" : value.toFixed(3) + (error ? " ± " + (1.96 * error).toFixed(3) : "");
const seconds = (time) => (typeof time === "string" ? Date.parse(time) / 1000 : time);
const now = () => Date.now() / 1000 + ahead;

function span(length) {
  const size = Math.abs(length);
  if (size < 90) return Math.round(size) + " s";
  if (size < 5400) return Math.round(size / 60) + " min";
  if (size < 36 * 3600) return Math.round(size / 3600) + " h";
  return counted(Math.round(size / 86400), "day");
}
const step = (width) => (width === 3600 ? "hour" : width === 60 ? "minute" : width === 1 ? "second" : span(width));
const relative = (time) => (time > now() + 0.5 ? "in " + span(time - now()) : "due now");
const small = (value) => (value < 0.001 ? value.toExponential().replace("e-", "e−") : String(value));
const words = (name) => name.replaceAll("_", " ");

// ---------------------------------------------------------------- elements

function put(parent, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) parent.setAttribute(name, value);
  for (const one of children.flat()) if (one !== null && one !== undefined) parent.append(one);
  return parent;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
function say(id, text) {
  const found = $(id);
  if (found && found.textContent !== text) found.textContent = text;
}
// A moment that keeps itself true: see `tick`.
function since(id, time) {
  const found = $(id);
  if (!found) return;
  if (time === null || time === undefined) {
    delete found.dataset.time;
    say(id, "–");
  } else {
    found.dataset.time = seconds(time);
    found.title = day.format(seconds(time) * 1000);
    say(id, relative(seconds(time)));
  }
}
function tick() {
  for (const found of document.querySelectorAll("[data-time]")) {
    const text = relative(Number(found.dataset.time));
    if (found.textContent !== text) found.textContent = text;
  }
  if (!content.classList.contains("old")) {
    for (const found of document.querySelectorAll("[data-ago]")) found.textContent = span(now() - Number(found.dataset.ago)) + " ago";
  }
}
const tile = (id, label) => h("div", {}, h("dt", {}, label), h("dd", { id }, "–"), h("dd", { class: "note", id: id + "-note" }, ""));
const fact = (id, label) => [h("dt", {}, label), h("dd", { id }, "–")];
const card = (width, id, title, ...inside) =>
  h("section", { class: "card " + width, "aria-labelledby": id }, h("h2", { id }, title), ...inside);

// A card that is there only where it has something to show.
const hidden = (width, id, heading, title, ...inside) =>
  h("section", { class: "card " + width, id, "aria-labelledby": heading, hidden: "" }, h("h2", { id: heading }, title), ...inside);

function table(id, caption, columns) {
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", { id })));
}
// Rows of texts, [text, class] pairs, {text, note}, {ago: time} or {spark: what to draw}; the first of each is its head. Left alone unless something changed.
function fill(id, rows, empty) {
  const body = $(id), mark = JSON.stringify(rows);
  if (!body || body.dataset.mark === mark) return;
  body.dataset.mark = mark;
  const columns = body.parentElement.querySelectorAll("thead th").length;
  body.replaceChildren(...rows.map((row) => h("tr", {}, row.map((cell, place) => {
    if (cell.ago) return h("td", { "data-ago": cell.ago, title: day.format(cell.ago * 1000) }, span(now() - cell.ago) + " ago");
    if (cell.spark) return h("td", {}, spark(...cell.spark));
    if (cell.note) return h("td", {}, cell.text, h("span", { class: "under" }, cell.note));
    const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
    return place ? h("td", { class: kind }, String(text)) : h("th", { scope: "row" }, breakable(String(text)));
  }))));
  if (!rows.length) body.append(h("tr", {}, h("td", { colspan: columns, class: "words" }, empty)));
}
// Names and counts, side by side where there is room.
function tally(id, counts) {
  const list = $(id), mark = JSON.stringify(counts);
  if (list.dataset.mark === mark) return;
  list.dataset.mark = mark;
  if (!Object.keys(counts).length) counts = { "nothing yet": 0 };
  list.replaceChildren(...Object.keys(counts).sort().map((name) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, count(counts[name])))));
}
// Names may be broken behind each underscore.
const breakable = (text) => text.split(/(?<=_)/).flatMap((part, place) => (place ? [h("wbr"), part] : [part]));
const behind = (...inside) => h("details", {}, h("summary", {}, "The same as a table"), ...inside);

// ---------------------------------------------------------------- charts

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / size - 1e-9) * size; at <= high + size * 1e-9; at += size) found.push(at);
  return found;
}
function times(first, last, wanted) {
  const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  const size = sizes.find((one) => (last - first) / one <= wanted) || 2592000;
  const zone = new Date(first * 1000).getTimezoneOffset() * 60, found = [];
  for (let at = Math.ceil((first - zone) / size) * size + zone; at <= last; at += size) found.push(at);
  const name = (at) => (size >= 86400 ? short.format(at * 1000).split(",")[0] : size < 60 ? exact.format(at * 1000) : clock.format(at * 1000));
  return found.map((at) => [at, name(at)]);
}
// Axes for points over time; gives the drawing and how places are found.
function plot(box, label, first, last, low, high) {
  const wide = Math.max(260, box.clientWidth), tall = wide < 480 ? 190 : 240;
  const left = 46, right = 8, top = 10, bottom = 26;
  const x = (time) => left + ((time - first) / (last - first)) * (wide - left - right);
  const y = (value) => tall - bottom - ((value - low) / (high - low)) * (tall - top - bottom);
  const drawing = s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": label });
  const marks = ticks(low, high, 4), digits = Math.max(0, ...marks.map((one) => (String(+one.toPrecision(6)).split(".")[1] || "").length));
  for (const one of marks) {
    drawing.append(s("line", { class: "grid", x1: left, x2: wide - right, y1: y(one), y2: y(one) }),
      s("text", { x: left - 6, y: y(one) + 4, "text-anchor": "end" }, one >= 10000 ? one / 1000 + "k" : one.toFixed(digits)));
  }
  for (const [at, name] of times(first, last, wide / 90)) {
    const place = x(at);
    if (place > left + 8 && place < wide - right - 16) drawing.append(s("text", { x: place, y: tall - 8, "text-anchor": "middle" }, name));
  }
  return { drawing, x, y };
}
function curve(at, points, name, kind) {
  const middle = (one) => at.x((one.start + one.end) / 2);
  const run = points.filter((one) => one[name] !== null);
  if (run.length) {
    const upper = run.map((one) => `${middle(one)},${at.y(one[name] + 1.96 * (one[name + "_error"] || 0))}`);
    const lower = run.map((one) => `${middle(one)},${at.y(one[name] - 1.96 * (one[name + "_error"] || 0))}`);
    at.drawing.append(s("polygon", { class: kind + "band", points: upper.concat(lower.reverse()).join(" ") }),
      s("polyline", { class: kind + "line", points: run.map((one) => `${middle(one)},${at.y(one[name])}`).join(" ") }));
    if (name === "value") {
      for (const one of run) {
        at.drawing.append(s("circle", { class: kind + "dot", cx: middle(one), cy: at.y(one[name]), r: 3 },
          s("title", {}, `${short.format(one.start * 1000)}: ${mean(one[name], one[name + "_error"])}`)));
      }
    }
  }
}
function drawLearning(box, { smooth, whole }, [least, most]) {
  const known = smooth; // blocks of about as many decisions each, one after the other
  if (!known.length) {
    box.replaceChildren(h("p", { class: "said" }, "Nothing yet: a decision counts once its reward window has closed."));
    return;
  }
  const ends = [];
  for (const one of [...known, whole]) {
    for (const name of one === whole ? ["uniform"] : ["value"]) {
      if (one[name] === null) continue;
      const reach = 1.96 * (one[name + "_error"] || 0);
      ends.push(Math.max(least, one[name] - reach), Math.min(most, one[name] + reach));
    }
  }
  let low = Math.min(...ends), high = Math.max(...ends);
  const room = Math.max(0.05 * (high - low), 0.01 * (most - least));
  low = Math.max(least, low - room);
  high = Math.min(most, high + room);
  const at = plot(box, "Average reward per decision over time, and of uniform choice where it can be estimated; the table below has the numbers.",
    known[0].start, known[known.length - 1].end, low, high);
  const clip = "clip-" + box.id;
  // Uniform choice does not learn: all of it is one estimate, from the first block to the last.
  const ends_of = [known[0].start, known[known.length - 1].end].map((time) => ({ ...whole, start: time, end: time }));
  curve(at, ends_of, "uniform", "base-");
  curve(at, known, "value", "");
  const size = at.drawing.viewBox.baseVal;
  at.drawing.append(s("clipPath", { id: clip }, s("rect", { x: 46, y: 10, width: size.width - 54, height: size.height - 36 })));
  for (const band of at.drawing.querySelectorAll("polygon")) band.setAttribute("clip-path", `url(#${clip})`);
  box.replaceChildren(at.drawing);
}
function drawActivity(box, { width, points }) {
  if (!points.length) {
    box.replaceChildren(h("p", { class: "said" }, "No decision yet."));
    return;
  }
  const last = points[points.length - 1].start, first = Math.min(points[0].start, last - 11 * width);
  const most = Math.max(...points.map((one) => Math.max(one.decisions, one.rewards)), 4);
  const at = plot(box, "Decisions and rewards over time; the table below has the numbers.", first, last + width, 0, most * 1.05);
  for (const one of points) {
    const from = at.x(one.start), wide = Math.max(1, at.x(one.start + width) - from - (points.length < 90 ? 1.5 : 0.3));
    for (const [value, kind, inset] of [[one.decisions, "bar", 0], [one.rewards, "bar-inner", wide * 0.22]]) {
      if (value) {
        at.drawing.append(s("rect", { class: kind, x: from + inset, width: wide - 2 * inset, y: at.y(value), height: at.y(0) - at.y(value) },
          s("title", {}, `${short.format(one.start * 1000)}: ${counted(one.decisions, "decision")}, ${counted(one.rewards, "reward")}`)));
      }
    }
  }
  box.replaceChildren(at.drawing);
}
function drawGraph(box, { nodes, edges, cliques }) {
  const wide = Math.max(260, Math.min(560, box.clientWidth)), tall = wide * 0.8;
  const clique = new Map(cliques.flatMap((names, place) => names.map((name) => [name, place])));
  const order = [...nodes].sort((a, b) => (clique.get(a) ?? 1e9) - (clique.get(b) ?? 1e9));
  const named = order.length <= 24, size = order.length <= 40 ? 12 : 6;
  const place = new Map(order.map((name, k) => {
    const angle = (2 * Math.PI * k) / order.length - Math.PI / 2;
    return [name, [wide / 2 + Math.cos(angle) * (wide / 2 - (named ? 62 : 20)), tall / 2 + Math.sin(angle) * (tall / 2 - (named ? 34 : 20))]];
  }));
  const drawing = s("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img",
    "aria-label": `Graph of ${counted(nodes.length, "agent")}, ${counted(edges.length, "link")} and ${counted(cliques.length, "clique")}; the table has the names.` });
  for (const [a, b] of edges) {
    if (!place.has(a) || !place.has(b)) continue;
    const own = clique.has(a) && clique.get(a) === clique.get(b);
    const [[x1, y1], [x2, y2]] = [place.get(a), place.get(b)];
    drawing.append(s("line", { class: own ? "edge own" : "edge", x1, y1, x2, y2 }));
  }
  for (const name of order) {
    const [cx, cy] = place.get(name), number = clique.has(name) ? String(clique.get(name) + 1) : "";
    drawing.append(s("circle", { class: "node", cx, cy, r: size }, s("title", {}, name)));
    if (size > 6) drawing.append(s("text", { class: "inside", x: cx, y: cy }, number));
    if (named) drawing.append(s("text", { x: cx, y: cy < tall / 2 ? cy - 18 : cy + 27, "text-anchor": "middle" }, name.length > 12 ? name.slice(0, 11) + "…" : name));
  }
  box.replaceChildren(drawing);
}
const sample = (inside) => s("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, inside);
const key_of = (kind) =>
  kind.endsWith("line") ? sample(s("line", { class: kind, x1: 1, x2: 25, y1: 6, y2: 6 })) : sample(s("rect", { class: kind, x: 5, y: 1, width: 16, height: 10 }));
const legend = (...pairs) => h("ul", { class: "legend" }, pairs.map(([kind, text]) => h("li", {}, key_of(kind), text)));

// ---------------------------------------------------------------- an agent

function standAgent() {
  content.replaceChildren(
    h("section", { class: "w12", "aria-label": "Now" }, h("dl", { class: "tiles" },
      tile("decisions", "Decisions"), tile("rewards", "Rewards"), tile("open", "Windows open"),
      tile("model", "Model in use"), tile("left", "Releases left"), tile("next", "Next release"))),
    card("w7", "h-learning", "Learning", h("p", { class: "said", id: "learning-said" }), h("div", { class: "chart", id: "learning" }),
      legend(["line", "this agent"], ["base-line", "uniform choice, estimated"], ["band", "95 % band"]),
      behind(table("t-learning", "Average reward per decision", ["From", "Decisions", "This agent", "Uniform"]))),
    card("w5", "h-privacy", "Privacy budget", h("p", { class: "said", id: "privacy-said" }),
      h("progress", { id: "meter", max: "1", value: "0", "aria-label": "Releases made" }),
      h("dl", { class: "facts" }, fact("budget", "Promise"), fact("made", "Releases made"), fact("out-at", "Runs out"),
        fact("season", "Season"), fact("waits", "Waiting for it"))),
    gainCard(),
    learntCard(),
    card("w7", "h-activity", "Decisions and rewards", h("p", { class: "said", id: "activity-said" }), h("div", { class: "chart", id: "activity" }),
      legend(["bar", "decisions"], ["bar-inner", "rewards"]),
      behind(table("t-activity", "Decisions and rewards, step by step", ["From", "Decisions", "Rewards"]))),
    card("w5", "h-sync", "Sync", h("p", { class: "said", id: "sync-said" }),
      table("t-sync", "What left, newest first", ["Number", "Made", "Arrived"])),
    hidden("w12", "rows-card", "h-rows", "Rows under pads", h("p", { class: "said", id: "rows-said" }),
      h("dl", { class: "facts many", id: "rows-counts" })),
    card("w12", "h-counters", "Counters since the file was made", h("dl", { class: "facts many", id: "counters" })));
}
function showAgent(it) {
  if (!it.counts) return; // it never could be read
  const counts = it.counts, steps = it.curve, width = steps.width;
  const alone = it.trust === "self"; // nothing ever leaves it
  say("name", it.name);
  say("what", `feducb agent, season ${it.season}${it.shadow ? ", shadow mode" : ""}`);
  document.title = `${it.name} · feducb`;
  say("decisions", count(counts.decisions || 0));
  say("rewards", count(counts.rewards || 0));
  say("open", count(it.open_decisions));
  say("open-note", "wait for a reward");
  const learning = (it.learning || []).length;
  say("model", it.model.length > 3 ? it.model[0] + " …" : it.model.join(", "));
  say("model-note", it.own ? it.own.says : !learning ? "chooses uniformly so far"
    : it.memory.seasons.some((one) => !one.misfit) ? "chooses by it and by earlier seasons" : "chooses by it");
  say("left", count(it.releases_left));
  say("left-note", `of ${count(it.releases)}`);
  const first = it.joins && (it.joins.season === null ? "waits to be in the roster again"
    : `waits for season ${it.joins.season}, which begins ${day.format(it.joins.at * 1000)}`);
  since("next", first ? null : it.next_release_at);
  say("next-note", first || (it.next_release_at ? day.format(it.next_release_at * 1000) : alone ? "nothing leaves" : it.releases_left ? "when the next record allows" : "none is left"));
  sayLearning(it);
  say("privacy-said", alone
    ? "This agent is alone: nothing ever leaves it, so outsiders learn nothing. Its decisions rest on raw records, and nothing is promised against the visitors who see them."
    : first ? `This agent ${first}: until then nothing leaves it.`
    : it.spent
    ? "Something has left: a person of this season is protected by exactly this promise, however many releases follow."
    : "Nothing has left yet, so nobody has paid anything.");
  $("meter").value = it.releases ? it.releases_made / it.releases : 0;
  say("budget", `ε = ${small(it.epsilon)}, δ = ${small(it.delta)}`);
  say("made", `${count(it.releases_made)} of ${count(it.releases)}`);
  say("out-at", alone ? "never: nothing leaves" : first ? "not before its first season ends" : it.runs_out_at ? `${day.format(it.runs_out_at * 1000)}, with the last release` : "it has: the last release was made");
  say("season", `${it.season}, until ${day.format(it.season_ends_at * 1000)}`);
  say("waits", counted(it.in_batch, "record"));
  say("activity-said", `Each bar is ${/^\d/.test(step(width)) ? "" : "one "}${step(width)}.`);
  const stamp = width < 60 ? exact : short;
  const newest = [...steps.points].reverse();
  fill("t-learning", newest.filter((one) => one.value !== null).map((one) => [stamp.format(one.start * 1000), count(one.settled), mean(one.value, one.value_error), mean(one.uniform, one.uniform_error)]), "Nothing yet");
  fill("t-activity", newest.map((one) => [stamp.format(one.start * 1000), count(one.decisions), count(one.rewards)]), "Nothing yet");
  say("sync-said", (it.sums.length
    ? "Newest sum: " + it.sums.map((one) => `${it.groups > 1 ? "group " + one.group + ", " : ""}number ${one.number} with ${counted(one.agents, "agent")} in it, came ${day.format(seconds(one.received_at) * 1000)}`).join("; ") + "."
    : "No sum has come yet.") + ` ${counted(it.outbox, "message")} ${it.outbox === 1 ? "waits" : "wait"} to be sent.` + sayEngine(it.engine));
  fill("t-sync", it.history.map((one) => [(it.groups > 1 ? one.group + "/" : "") + one.number + (one.kind === "upload" ? " (raw)" : one.kind === "make-up" ? " (made up for)" : ""),
    stamp.format(seconds(one.made_at) * 1000), one.sent_at ? stamp.format(seconds(one.sent_at) * 1000) : ["waits", "no"]]), "Nothing has left");
  $("rows-card").hidden = !it.rows;
  if (it.rows) sayRows(it.rows, it.engine, it.keeper);
  tally("counters", counts);
  sayGain(it);
  drawAgent();
  followLearnt(it);
}
// Where rows leave under pads: what this agent has done, and what the controller says the open row waits for.
function sayRows(rows, engine, keeper) {
  const waits = ((engine || {}).rows || {}).waiting, missing = rows.missing_cards || [];
  const keys = !rows.keepers ? "" : !rows.keepers.length ? " Members of the clique hide their rows in pairs."
    : ` Keepers are ${rows.keepers.join(", ")}; ` + (missing.length ? `no key of this season has come yet of ${missing.join(", ")}.` : "all their keys are here.");
  const own = keeper ? ` This agent's own keeper has answered ${counted(keeper.answered, "list")}${keeper.row ? `, the newest for row ${keeper.row}` : ""}.` : "";
  say("rows-said", rows.says + (waits ? ` The controller says: ${waits}` : "") + keys + own);
  tally("rows-counts", { built: rows.built, skipped: rows.skipped, opened: rows.opened, "sums refused": rows.refused, "closed empty": rows.closed_empty });
}
function sayEngine(engine) {
  if (!engine) return "";
  const listed = (reasons) => Object.entries(reasons).map(([reason, number]) => `${reason} ${count(number)}`).join(", ");
  const refused = listed(engine.refused);
  const neighbours = Object.entries(engine.refused_neighbours || {}).map(([name, reasons]) => `${name} (${listed(reasons)})`).join(", ");
  return (engine.connected ? " The broker is reached." : " The broker is not reached.") + (refused ? ` Refused: ${refused}.` : "")
    + (neighbours ? ` Refused here, of neighbours: ${neighbours}.` : "");
}
function sayLearning(it) {
  const { value, value_error, uniform, uniform_error, settled } = it.curve.whole;
  if (value === null) return say("learning-said", `Rewards count when their window (${span(it.window)}) has closed.`);
  const first = sayBeforeAndNow(it.curve.smooth) + `A decision brought ${mean(value, value_error)} on average, over ${counted(settled, "decision")} shown here. `;
  const second = uniform === null
    ? it.shadow ? "Uniform choice is not estimated in shadow mode." : "Uniform choice cannot be estimated from them yet; uniform_share above 0 makes sure that it can."
    : `Uniform choice would have brought ${mean(uniform, uniform_error)}, as estimated from decisions with a known chance.`;
  const third = uniform !== null && !it.uniform_share && (it.learning || []).length ? " Since learning began it cannot be estimated: uniform_share is 0." : "";
  say("learning-said", first + second + third);
}
function drawAgent() {
  if (!told || !told.curve) return;
  drawLearning($("learning"), told.curve, told.reward_range);
  drawActivity($("activity"), told.curve);
  if (!$("gain-card").hidden) drawGain($("gain"), told.gain.lanes, told.reward_range);
}

// ---------------------------------------------------------------- a controller

function standController() {
  content.replaceChildren(
    h("section", { class: "w12", "aria-label": "Now" }, h("dl", { class: "tiles" },
      tile("agents", "Agents"), tile("inside", "In the newest sum"), tile("sum", "Newest sum"), tile("refused-all", "Messages refused"))),
    card("w7", "h-agents", "Agents", table("t-agents", "Who is there", ["Agent", "In sum", "Last seen", "Message"])),
    card("w5", "h-refused", "Refused messages", table("t-refused", "By reason", ["Reason", "Agent", "Count"])),
    hidden("w12", "rows-card", "h-rows", "The open row", h("p", { class: "said", id: "rows-said" }),
      h("dl", { class: "facts" }, fact("row-sent", "Have sent"), fact("row-late", "Have not sent"), fact("row-answered", "Keepers that answered"),
        fact("row-asked", "Keepers waited for"), fact("row-over", "Rows before it"))),
    hidden("w7", "graph-card", "h-graph", "Graph",
      h("p", { class: "said" }, "The number in a circle names its clique; thick lines are inside one."),
      h("div", { class: "chart", id: "graph" }),
      h("details", {}, h("summary", {}, "The cliques as a table"), table("t-cliques", "Cliques", ["Clique", "Agents"]))),
    card("w12", "h-sums", "Sums published", h("p", { class: "said", id: "sums-said" }), table("t-sums", "Newest first", ["Number", "Season", "Agents", "Published", "Noise"])));
}
function showController(it) {
  const agents = it.agents || [], inside = agents.filter((one) => one.in_sum).length;
  say("name", it.name || "federation");
  say("what", `feducb controller, season ${it.season ?? "–"}`);
  document.title = `${it.name || "federation"} · feducb controller`;
  say("agents", count(agents.length));
  say("agents-note", it.quorum ? `a sum needs ${it.quorum}` : "");
  say("inside", `${inside} of ${agents.length}`);
  const late = agents.filter((one) => !one.in_sum).map((one) => one.name);
  say("inside-note", it.newest_sum ? (late.length ? "missing: " + late.slice(0, 3).join(", ") + (late.length > 3 ? ` and ${late.length - 3} more` : "") : "all are in it") : "none yet");
  say("sum", it.newest_sum ? String(it.newest_sum.number) : "–");
  say("sum-note", it.releases ? `of ${it.releases}` : "");
  const refused = [...agents.map((one) => [one.name, one.refused || {}]), ["strangers", it.strangers || {}]]
    .flatMap(([name, reasons]) => Object.entries(reasons).map(([reason, number]) => [reason, name, number]))
    .sort((a, b) => b[2] - a[2]);
  say("refused-all", count(refused.reduce((sum, one) => sum + one[2], 0)));
  say("refused-all-note", refused.length ? "mostly: " + refused[0][0] : "");
  fill("t-agents", agents.map((one) => [one.name, one.in_sum ? ["yes", "yes"] : ["no", "no"],
    one.last_seen ? { ago: seconds(one.last_seen) } : "–", count(one.number)]), "No agents");
  fill("t-refused", refused.map(([reason, name, number]) => [reason, name, count(number)]), "None");
  const sums = it.sums || [], absent = (names) => agents.map((one) => one.name).filter((name) => !names.includes(name));
  say("sums-said", sums.length ? `${counted(sums.length, "sum")}. Noise is the standard deviation in an entry of a sum’s Gram, which is public.` : "");
  fill("t-sums", sums.map(({ number, season, names, published_at, deviation }) => {
    const gone = absent(names), few = gone.slice(0, 3).join(", ") + (gone.length > 3 ? ` and ${gone.length - 3} more` : "");
    return [number, season, gone.length ? { text: `${names.length} of ${agents.length}`, note: "without " + few } : names.length,
      short.format(seconds(published_at) * 1000), Number(deviation.toPrecision(3))];
  }), "None yet");
  $("rows-card").hidden = !it.rows;
  if (it.rows) sayOpenRow(it.rows, agents.length);
  $("graph-card").hidden = !it.graph;
  if (it.graph) fill("t-cliques", it.graph.cliques.map((names, place) => [place + 1, [names.join(", "), "words"]]), "None");
  drawController();
}
function sayOpenRow(rows, agents) {
  const some = (names) => (names.length ? names.slice(0, 12).join(", ") + (names.length > 12 ? ` and ${names.length - 12} more` : "") : "nobody");
  const again = rows.attempt === 2 ? ", made up for since it was closed empty," : "";
  say("rows-said", rows.row === null ? "All rows of this season are over." : rows.waiting || `Row ${rows.row}${again} is open, and waits for its time.`);
  say("row-sent", `${rows.sent.length} of ${agents}: ${some(rows.sent)}`);
  say("row-late", some(rows.waits_for_agents));
  say("row-answered", rows.listed ? some(rows.answered) : "none is asked yet");
  say("row-asked", some(rows.waits_for_keepers));
  say("row-over", `${count(rows.opened)} opened, ${count(rows.refused)} with a sum that was refused, ${count(rows.closed_empty)} closed empty`);
}
function drawController() {
  if (told && told.graph) drawGraph($("graph"), told.graph);
}

const KINDS = { agent: [standAgent, showAgent, drawAgent], controller: [standController, showController, drawController] };

function show(snapshot) {
  const kind = KINDS[snapshot.kind];
  if (!kind) return;
  told = snapshot;
  if (snapshot.at) ahead = snapshot.at - Date.now() / 1000;
  if (drawn !== snapshot.kind) {
    kind[0]();
    drawn = snapshot.kind;
  }
  content.hidden = false;
  content.classList.remove("old");
  kind[1](snapshot);
  sayTrouble(snapshot.trouble || []);
}
// What is wrong, each with its weight in words: colour is not all that tells.
function sayTrouble(trouble) {
  const box = $("trouble"), mark = JSON.stringify(trouble);
  if (box.dataset.mark === mark) return;
  box.dataset.mark = mark;
  box.hidden = !trouble.length;
  box.replaceChildren(...trouble.map((one) => h("p", { class: "notice " + one.severity },
    h("b", {}, one.severity === "wrong" ? "Wrong: " : "Doubtful: "), one.says)));
}

// ---------------------------------------------------------------- the link

function state(kind, text) {
  $("state").className = "state " + kind + (told && (told.trouble || []).length ? " troubled" : "");
  say("state", text);
  content.classList.toggle("old", kind === "away");
}
const pause = (time) => new Promise((done) => setTimeout(done, time));

async function logIn(secret) {
  return fetch("/v1/session", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ key: secret }) });
}
async function mayLook() {
  const answer = await fetch("/v1/session", { cache: "no-store" });
  if (!answer.ok) throw new Error("no answer");
  if ((await answer.json()).open) return true;
  if (key === null) return false;
  const again = await logIn(key);
  if (again.status >= 500) throw new Error("no answer");
  if (!again.ok) key = null;
  return again.ok;
}
function askToLogIn() {
  told = null;
  content.hidden = true;
  sayTrouble([]);
  $("leave").hidden = true;
  if ($("login").hidden) {
    $("login").hidden = false;
    $("key").focus();
  }
  state("", "Not logged in");
}
// One connection: snapshots until it ends; a service that says nothing for long counts as away.
async function listen(leaving) {
  const answer = await fetch("/v1/events", { cache: "no-store", signal: leaving.signal, headers: { accept: "text/event-stream" } });
  if (!answer.ok) throw new Error("no stream");
  $("login").hidden = true;
  $("leave").hidden = false;
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const quiet = setTimeout(() => leaving.abort(), 15000);
    const { value, done } = await reader.read().finally(() => clearTimeout(quiet));
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const one of events) {
      if (one.startsWith("event: end")) return;
      if (one.startsWith("data: ")) {
        show(JSON.parse(one.slice(6)));
        state("live", "Live");
        wait = 500;
      }
    }
  }
}
let wait = 500;
let link = null;
async function follow() {
  for (;;) {
    link = new AbortController();
    try {
      if (!(await mayLook())) return askToLogIn();
      await listen(link);
      if (link.signal.aborted) return;
      await pause(200);
      continue;
    } catch (error) {
      if (link.signal.reason === "left") return;
    }
    state("away", "Connection lost, trying again");
    await pause(wait * (0.75 + Math.random() / 2));
    wait = Math.min(2 * wait, 8000);
  }
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const secret = $("key").value.trim();
  try {
    const answer = await logIn(secret);
    if (!answer.ok) {
      $("refused").textContent = answer.status === 403 ? "This key does not open the page: it needs an operator’s or a viewer’s." : "This key is not known here.";
      $("key").select();
      return;
    }
  } catch (error) {
    $("refused").textContent = "The service is not responding.";
    return;
  }
  key = secret;
  $("key").value = "";
  $("refused").textContent = "";
  $("main").focus();
  follow();
});
$("leave").addEventListener("click", async () => {
  key = null;
  if (link) link.abort("left");
  try {
    await fetch("/v1/session", { method: "DELETE" });
  } catch (error) { /* it is away, and has forgotten the session */ }
  askToLogIn();
});

// ---------------------------------------------------------------- light and dark

const darkByDefault = matchMedia("(prefers-color-scheme: dark)");
function themed() {
  const dark = (document.documentElement.dataset.theme || (darkByDefault.matches ? "dark" : "light")) === "dark";
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", dark ? "Light colours" : "Dark colours");
  return dark;
}
try {
  const kept = localStorage.getItem("feducb-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
} catch (error) { /* no storage: as the device says */ }
$("theme").addEventListener("click", () => {
  const chosen = themed() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try { localStorage.setItem("feducb-theme", chosen); } catch (error) { /* for this visit only */ }
  themed();
});
darkByDefault.addEventListener("change", themed);
themed();

let width = 0;
new ResizeObserver(() => {
  if (content.clientWidth === width || !drawn) return;
  width = content.clientWidth;
  KINDS[drawn][2]();
}).observe(content);
setInterval(tick, 1000);
// A key behind # never leaves the browser: a program that starts an agent can open its page logged in.
if (location.hash.startsWith("#key=")) {
  key = decodeURIComponent(location.hash.slice(5));
  history.replaceState(null, "", location.pathname);
}
follow();
