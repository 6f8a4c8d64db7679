// The columns of a table of jobs.

import { jsonText } from "./body.js";
import { h } from "./dom.js";
import { agoText, countText, durationText, momentText } from "./format.js";
import { jobHref, shortId, shown, shownOr, tubeHref } from "./names.js";

/** Return the first line of a body for a table. */
export function bodyText({ body, as }) {
  if (as === "hidden") return "(hidden)";
  if (as === "base64") return `(bytes) ${String(body).slice(0, 40)}`;
  if (as === "damaged") return "(damaged)";
  return shown(typeof body === "string" ? body : jsonText(body), 160);
}

export const statePill = (state) => h("span", { class: `pill ${state}` }, state);

export const jobColumns = ({ tube = false, state = true, reason = false } = {}) => [
  { id: "id", label: "Job", text: (job) => shortId(job.id), value: (job) => job.id, link: (job) => jobHref(job.id), title: (job) => job.id, tight: true },
  tube && { id: "tube", label: "Tube", text: (job) => shown(job.tube, 40), value: (job) => job.tube, link: (job) => tubeHref(job.tube), name_: true },
  state && { id: "state", label: "State", text: (job) => job.state, className: () => "tight", make: (job) => {
    const element = statePill(job.state);
    return { element, update: (data) => {
      element.className = `pill ${data.state}`;
      element.firstChild.data = data.state;
    } };
  } },
  { id: "key", label: "Key", second: true, text: (job) => shownOr(job.key, 40), value: (job) => job.key, name_: true },
  { id: "deliveries", label: "Deliveries", number: true, second: true, text: (job) => countText(job.deliveries), value: (job) => job.deliveries },
  { id: "nacks", label: "Failed", number: true, second: true, text: (job) => countText(job.nacks), value: (job) => job.nacks },
  { id: "since_ms", label: "In this state", second: true, text: (job) => (job.since_ms ? `for ${durationText(Date.now() - job.since_ms)}` : ""), value: (job) => (job.since_ms ? new Date(job.since_ms).toISOString() : ""), title: (job) => (job.since_ms ? `Since ${momentText(job.since_ms, true)}` : ""), tight: true },
  { id: "created_ms", label: "Put", second: true, text: (job) => agoText(job.created_ms), value: (job) => new Date(job.created_ms).toISOString(), title: (job) => momentText(job.created_ms, true), tight: true },
  reason && { id: "reason", label: "Reason", clip: true, text: (job) => shownOr(job.reason, 200), value: (job) => job.reason, title: (job) => shownOr(job.reason, 1000) },
  { id: "body", label: "Body", clip: true, text: bodyText, value: (job) => job.body },
];
