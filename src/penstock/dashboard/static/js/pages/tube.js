// One tube: its numbers, charts, keys, jobs and policy.

import { get } from "../api.js";
import { TimeChart, barTable } from "../charts.js";
import { h, root, setText } from "../dom.js";
import { countText, durationText, rateText } from "../format.js";
import { page, start } from "../frame.js";
import { jobColumns } from "../job_columns.js";
import { shown } from "../names.js";
import { Samples } from "../samples.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { facts, tiles } from "../tiles.js";
import { tubeButtons } from "../tube_actions.js";
import { tubeStatus } from "../tube_columns.js";
import { empty, exportButtons, onClock, parameters, setParameters } from "../ui.js";

const STATES = ["ready", "taken", "delayed", "buried", "done"];
// The lines of the chart of rates, and the events that each one counts.
const RATES = [
  ["put", ["put", "put delayed", "put urgent", "published", "published delayed", "moved in", "moved in delayed"], "s0"],
  ["taken", ["taken", "claimed"], "s3", true],
  ["acked", ["acked", "kept", "lingered"], "s2"],
  ["failed", ["nacked", "buried", "exhausted", "ttr passed"], "buried"],
];
const path = location.pathname.slice(root.length);
const duration = (ms) => (ms === null || ms === undefined ? "–" : durationText(ms));
const card = (title, actions, ...parts) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title), actions && h("div", { class: "actions" }, actions)), parts);

start(async (user) => {
  const tube = await get(path);
  const { name } = tube;
  let row = { ...tube, ...tube.stats };
  let before = null;
  const query = `/jobs?${new URLSearchParams({ tube: name })}`;
  const counts = tiles([
    ...STATES.map((state) => ({ name: state, label: state[0].toUpperCase() + state.slice(1), dot: state, href: `${root}${query}&state=${state}` })),
    { name: "oldest", label: "Oldest ready" },
    { name: "consumers", label: "Waiting takes" },
  ]);
  const rates = new TimeChart({ title: "Jobs per second", series: RATES.map(([label, , colour, dash]) => ({ label, colour, dash })) });
  const states = new TimeChart({ title: "Jobs by state", kind: "stacked", text: countText,
    series: [{ label: "ready", colour: "s0" }, { label: "taken", colour: "s2" }, { label: "delayed", colour: "s3" }, { label: "buried", colour: "buried" }] });
  const ages = new TimeChart({ title: "Age of the oldest ready job", scale: "duration", text: durationText, series: [{ label: "oldest ready job", colour: "s1" }] });
  const kept = new Samples(`tube-${name}`);
  const status = h("span", { class: "pill", hidden: true });
  const policy = facts();
  const waits = h("div", { class: "grid" });
  const keys = h("div");
  const jobs = new LiveTable({ caption: `Jobs of ${shown(name)}`, columns: jobColumns(), key: (job) => job.id });
  const jobsEmpty = h("div", {}, empty("No jobs in this state", "", `penstock put ${shellWord(name)} '{"to":"ann@example.org"}'`));
  const jobState = parameters().state ?? "ready";

  const draw = ([ms, rate, state, age]) => {
    rates.push(ms, rate);
    states.push(ms, state);
    ages.push(ms, [age]);
  };
  /** Return the events per second since the last sample. */
  const speeds = (ms, events) => {
    const found = RATES.map(([, names]) => names.reduce((sum, each) => sum + (events?.[each] ?? 0), 0));
    const last = before;
    before = { ms, found };
    return last && ms > last.ms + 300 ? found.map((count, at) => Math.max(0, (1000 * (count - last.found[at])) / (ms - last.ms))) : RATES.map(() => null);
  };
  const show = (data) => {
    if (data.error) return;
    row = { ...row, ...data };
    const ms = row.at_ms ?? Date.now();
    const rate = speeds(ms, row.events);
    for (const state of STATES) counts.update(state, countText(row[state] ?? 0), "", state === "buried" && row.buried > 0);
    counts.update("ready", countText(row.ready), rate[0] === null ? "" : `${rateText(rate[0])} put/s`);
    counts.update("taken", countText(row.taken), rate[2] === null ? "" : `${rateText(rate[2])} acked/s`);
    counts.update("oldest", duration(row.oldest_ms));
    counts.update("consumers", countText(row.consumers));
    const [text, level] = tubeStatus(row);
    status.hidden = !text;
    status.className = `pill ${level}`;
    setText(status, text);
    const point = [ms, rate, STATES.slice(0, 4).map((state) => row[state] ?? 0), row.oldest_ms];
    kept.add(point);
    draw(point);
  };
  const showKeys = (data) => {
    const rows = data.keys.map(({ key, ready, taken }) => ({ label: shown(key, 40), ready, taken }));
    keys.replaceChildren(rows.length
      ? h("div", { class: "grid" },
        h("div", {}, h("h3", {}, "By backlog"), barTable("Keys with the most waiting jobs", top(rows, "ready"))),
        h("div", {}, h("h3", {}, "In flight"), barTable("Keys with the most taken jobs", top(rows, "taken"), true)),
        data.count > rows.length ? h("p", { class: "note" }, `${countText(data.count)} keys in total. These are those with the most ready jobs.`) : "")
      : empty("No keys", "No job of this tube that waits or is taken has a key.", `penstock put ${shellWord(name)} '{}' --key ann`));
  };
  const showJobs = async () => {
    const found = await get(`${query}&state=${jobTabs.value()}&limit=50`);
    jobs.update(found.jobs);
    jobs.element.hidden = !found.jobs.length;
    jobsEmpty.hidden = found.jobs.length > 0;
  };
  const jobTabs = tabs(STATES, STATES.includes(jobState) ? jobState : "ready", (state) => {
    setParameters({ state });
    showJobs();
  });
  const showSlow = async () => {
    const info = await get(path);
    row = { ...row, policy: info.policy };
    policy.update(policyRows(info.policy));
    showDurations(waits, info.stats);
    await get(`${path}/keys?count=50`).then(showKeys, () => (keyCard.hidden = true));
  };

  const keyCard = card("Keys", null, keys);
  page({ title: shown(name), badges: [h("span", { class: "badge" }, tube.type), status], actions: tubeButtons(user, name, () => row) },
    counts.element,
    h("div", { class: "grid" }, card("Rates per second", null, rates.element), card("Jobs by state", null, states.element)),
    h("div", { class: "grid" }, card("Age of the oldest ready job", null, ages.element), card("Waits and runs", null, waits)),
    keyCard,
    h("section", { class: "card flush" }, h("header", {}, h("h2", {}, "Jobs"), jobTabs.element, h("div", { class: "actions" }, h("a", { href: root + query }, "Search"), exportButtons("jobs", () => jobs.records()))), jobs.element, jobsEmpty),
    card("Policy", null, policy.element));
  kept.points.forEach(draw);
  show(tube.stats);
  const stream = new Stream(`/events?${new URLSearchParams({ topics: `tube:${name}` })}`, { tube: show, tick: show });
  onClock(() => [rates, states, ages].forEach((chart) => chart.redraw()));
  await Promise.all([stream.every(5000, showSlow), stream.every(3000, showJobs)]);
});

/** Return the rules of a tube that differ from "none", in words. Times are in milliseconds. */
function policyRows(policy) {
  return Object.entries(policy)
    .filter(([, value]) => value !== null && value !== "" && value !== false && value !== "none")
    .map(([option, value]) => [option.replace(/^default_/, "").replace(/_ms$/, "").replaceAll("_", " "),
      option.endsWith("_ms") && typeof value === "number" ? (value > 1e15 ? "forever" : durationText(value)) : value === true ? "yes" : typeof value === "object" ? JSON.stringify(value) : String(value)]);
}

const top = (rows, by) => [...rows].sort((a, b) => b[by] - a[by]).filter((row) => row[by]).slice(0, 10)
  .map((row) => ({ label: row.label, value: row[by], text: countText(row[by]) }));

/** Return a word for a shell. */
const shellWord = (text) => (/^[\w.:@%+-]+$/.test(text) ? text : `'${shown(text).replaceAll("'", "'\\''")}'`);

function tabs(names, first, choose) {
  let chosen = first;
  const buttons = names.map((name) => h("button", { type: "button", "aria-pressed": String(name === first), onclick: () => {
    chosen = name;
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.textContent === name)));
    choose(name);
  } }, name));
  return { element: h("div", { class: "tabs", role: "group", "aria-label": "State of the jobs" }, buttons), value: () => chosen };
}

/** Draw the histograms of a tube: a bucket per power of two, in bars of a factor of four. */
function showDurations(place, stats) {
  const parts = [["Waited until taken", stats.waits, false], ["Ran until acked", stats.runs, true]].filter(([, found]) => found);
  const drawn = parts.map(([title, { buckets }, second]) => {
    const rows = [];
    for (let at = 0; at < buckets.length; at += 2) {
      const value = (buckets[at] ?? 0) + (buckets[at + 1] ?? 0);
      rows.push({ label: `< ${durationText(2 ** (at + 1))}`, value, text: countText(value) });
    }
    while (rows.length && !rows[0].value) rows.shift();
    return h("div", {}, h("h3", {}, title), rows.length ? barTable(title, rows, second) : h("p", { class: "note" }, "None since the node started."));
  });
  if (drawn.length) place.replaceChildren(...drawn);
  else place.replaceChildren(h("p", { class: "note" }, "This node reports no durations."));
}
