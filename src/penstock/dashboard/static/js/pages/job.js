// One job: its history as a timeline, its body and headers, its holders, and what can be done with it.

import { get } from "../api.js";
import { $, h, root } from "../dom.js";
import { bodyViewer, bytesOf, jsonText } from "../body.js";
import { agoText, countText, durationText, momentText } from "../format.js";
import { page, start } from "../frame.js";
import { jobButtons } from "../job_actions.js";
import { statePill } from "../job_columns.js";
import { shortId, shown, tubeHref } from "../names.js";
import { Stream } from "../stream.js";
import { timeline } from "../timeline.js";
import { facts } from "../tiles.js";
import { button, copy, empty, onClock } from "../ui.js";

const path = location.pathname.slice(root.length);
const TIMES = ["created_ms", "expires_ms", "wakes_ms", "next_event_ms", "since_ms"];
const SHOWN = new Set(["id", "url", "tube", "state", "body", "as", "kind", "headers", "text", "history_url", "copies"]);

start(async (user) => {
  let old = "";
  const show = async () => {
    const [job, past] = await Promise.all([get(path).catch(gone), get(`${path}/history`).catch((error) => ({ error }))]);
    const found = jsonText([job, past]);
    if (found === old) return;
    old = found;
    draw(user, job, past, show);
  };
  await show();
  const tube = document.body.dataset.tube;
  const stream = new Stream(`/events?${new URLSearchParams({ topics: tube ? `tube:${tube}` : "overview" })}`, { tube() {}, tick() {}, overview() {} });
  onClock(() => {
    old = "";
    show();
  });
  await stream.every(3000, show);
});

/** A job that is gone may still have a history. */
function gone(error) {
  if (error.status === 404) return { state: "gone", missing: true };
  throw error;
}

function draw(user, job, past, again) {
  const events = past.events ?? [];
  const tube = job.tube ?? events.at(-1)?.tube;
  if (tube !== undefined) document.body.dataset.tube = tube;
  const id = job.id ?? events[0]?.job ?? decodeURIComponent(path.split("/").at(-1));
  if (job.missing && !events.length) {
    page({ title: `Job ${shortId(id)}` }, h("div", { class: "card" }, empty("There is no such job", "It was never put into this queue, or it is gone and retention has deleted its history.", `penstock job history ${id}`)));
    return;
  }
  // Focus and selections in the page stay, because it is drawn anew only if the job has changed and nothing is selected.
  const busy = !getSelection().isCollapsed && $("#main").contains(getSelection().anchorNode);
  if (busy && document.title !== "" && $("#main .timeline")) return;
  const text = job.missing ? "" : job.as === "base64" ? "" : job.as === "json" ? jsonText(job.body) : job.body;
  const details = facts([
    ["Id", h("span", {}, h("code", {}, id), " ", button("Copy", { small: true, plain: true, onclick: () => copy(id) }))],
    ["Tube", tube === undefined ? null : h("a", { href: tubeHref(tube) }, shown(tube))],
    ...Object.entries({ ...job, ...job.meta }).filter(([name, value]) => !SHOWN.has(name) && name !== "missing" && value !== null && value !== "" && typeof value !== "object").map(([name, value]) => [label(name), valueText(name, value)]),
  ]);
  const headers = Object.entries(job.headers ?? {});
  page({
    title: `Job ${shortId(id)}`,
    badges: [statePill(job.state)],
    actions: job.missing ? [] : jobButtons(user, { ...job, text }, again),
  },
  h("div", { class: "grid aside" },
    h("div", {},
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Timeline"), h("span", { class: "muted" }, "from the journal")), past.error ? h("p", { class: "note" }, past.error.message) : timeline(past.lines, events)),
      job.missing ? "" : h("section", { class: "card" }, h("header", {}, h("h2", {}, "Body")), bodyPart(job, text))),
    h("div", {},
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Details")), details.element),
      headers.length ? h("section", { class: "card" }, h("header", {}, h("h2", {}, "Headers")), facts(headers.map(([name, value]) => [shown(name, 60), shown(value, 1000)])).element) : "",
      job.copies?.length ? h("section", { class: "card" }, h("header", {}, h("h2", {}, "Copies")), copies(job.copies)) : "")));
}

function bodyPart(job, text) {
  if (job.as === "hidden") return h("p", { class: "note" }, "The administrator of this dashboard has hidden the bodies of jobs.");
  if (job.as === "damaged") return h("div", { class: "alert bad" }, "The body could not be read back from the journal.");
  return bodyViewer(job.as === "base64" ? bytesOf(job.body, "base64") : bytesOf(text, "text"), job.kind, `job-${job.id.slice(11, 19)}`);
}

function copies(list) {
  return h("ul", {}, list.map(({ node, has_ack }) => h("li", {}, h("code", {}, shown(node, 60)), " ", h("span", { class: "muted" }, has_ack ? "has confirmed the ack" : ""))));
}

const label = (name) => ({ created_ms: "Put", expires_ms: "Expires", wakes_ms: "Next change", next_event_ms: "Next change", since_ms: "In this state since", ttr_ms: "Ttr", ttl_ms: "Ttl", nacks: "Failures" }[name] ?? name.replace(/_ms$/, "").replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase()));

function valueText(name, value) {
  if (TIMES.includes(name)) return h("span", { title: momentText(value, true) }, `${momentText(value)} (${agoText(value)})`);
  if (name.endsWith("_ms")) return durationText(value);
  if (typeof value === "number") return countText(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : shown(value, 500);
}
