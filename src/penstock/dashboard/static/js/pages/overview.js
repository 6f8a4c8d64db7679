// Overview: what is in the queue, how fast it moves, and what needs attention.

import { get } from "../api.js";
import { alertList } from "../alerts.js";
import { TimeChart } from "../charts.js";
import { h, root } from "../dom.js";
import { bytesText, countText, durationText, rateText } from "../format.js";
import { page, start } from "../frame.js";
import { Samples } from "../samples.js";
import { Stream } from "../stream.js";
import { tiles } from "../tiles.js";
import { empty, onClock } from "../ui.js";

const STATES = ["ready", "taken", "delayed", "buried"];
const duration = (ms) => (ms === null || ms === undefined ? "–" : durationText(ms));

start(async () => {
  const counts = tiles([
    { name: "ready", label: "Ready", dot: "ready", href: `${root}/jobs?state=ready` },
    { name: "taken", label: "Taken", dot: "taken", href: `${root}/jobs?state=taken` },
    { name: "delayed", label: "Delayed", dot: "delayed", href: `${root}/jobs?state=delayed` },
    { name: "buried", label: "Buried", dot: "buried", href: `${root}/buried` },
    { name: "oldest", label: "Oldest ready" },
    { name: "waits", label: "Wait, 95 %" },
    { name: "runs", label: "Run, 95 %" },
    { name: "memory", label: "Memory", href: `${root}/settings` },
  ]);
  const rates = new TimeChart({
    title: "Jobs per second",
    series: [{ label: "put", colour: "s0" }, { label: "taken", colour: "s3", dash: true }, { label: "acked", colour: "s2" }, { label: "failed", colour: "buried" }],
  });
  const states = new TimeChart({
    title: "Jobs by state",
    kind: "stacked",
    text: countText,
    series: [{ label: "ready", colour: "s0" }, { label: "taken", colour: "s2" }, { label: "delayed", colour: "s3" }, { label: "buried", colour: "buried" }],
  });
  const ages = new TimeChart({
    title: "Durations",
    scale: "duration",
    text: durationText,
    series: [{ label: "oldest ready job", colour: "s1", dash: true }, { label: "wait, 95 %", colour: "s0" }, { label: "run, 95 %", colour: "s2" }],
  });
  const alerts = alertList();
  const none = h("div", { class: "card", hidden: true }, empty("The queue is empty", "A tube is made by the first put.", `penstock put emails '{"to":"ann@example.org"}'`));
  const kept = new Samples("overview");
  let now = null;

  function draw([ms, rate, state, age]) {
    rates.push(ms, rate);
    states.push(ms, state);
    ages.push(ms, age);
  }

  /** Show the newest numbers, and add a point to the charts. */
  function show(data) {
    now = { ...now, ...data };
    for (const state of STATES) counts.update(state, countText(now[state] ?? 0), "", state === "buried" && now.buried > 0);
    counts.update("ready", countText(now.ready), `${rateText(now.in_rate)} put/s`);
    counts.update("taken", countText(now.taken), `${rateText(now.ack_rate)} acked/s`);
    counts.update("oldest", duration(now.oldest_ms));
    none.hidden = now.tubes !== 0;
    const point = [now.at_ms, [now.in_rate, now.take_rate, now.ack_rate, now.fail_rate], STATES.map((state) => now[state] ?? 0), [now.oldest_ms, now.wait_p95_ms, now.run_p95_ms]];
    kept.add(point);
    draw(point);
  }

  /** Show what is read less often: alerts, durations and the server. */
  function showServer(data) {
    alerts.update(data.alerts ?? []);
    counts.update("waits", duration(data.wait_p95_ms));
    counts.update("runs", duration(data.run_p95_ms));
    counts.update("memory", bytesText(data.memory_bytes ?? 0), data.memory_bytes_max ? `of ${bytesText(data.memory_bytes_max)}` : "");
    now = { ...now, wait_p95_ms: data.wait_p95_ms, run_p95_ms: data.run_p95_ms };
  }

  page({ title: "Overview" }, alerts.element, none, counts.element,
    h("div", { class: "grid" }, card("Rates per second", rates.element), card("Jobs by state", states.element)),
    card("Waits and runs", ages.element));
  kept.points.forEach(draw);
  const stream = new Stream("/events?topics=overview", { overview: show, tick: show });
  await stream.every(5000, async () => showServer(await get("/overview")));
  onClock(() => [rates, states, ages].forEach((chart) => chart.redraw()));
});

const card = (title, ...parts) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), parts);
