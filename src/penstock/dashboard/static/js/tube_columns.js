// The columns of the table of tubes.

import { Sparkline } from "./charts.js";
import { h, setText } from "./dom.js";
import { countText, durationText, rateText } from "./format.js";
import { shown, tubeHref } from "./names.js";

const count = (id, label, more = {}) => ({
  id,
  label,
  number: true,
  sort: (row) => row[id] ?? 0,
  text: (row) => countText(row[id] ?? 0),
  value: (row) => row[id] ?? 0,
  className: (row) => (row[id] ? "" : "zero"),
  ...more,
});

const rate = (id, label, hint) => ({
  id,
  label,
  hint,
  number: true,
  second: true,
  sort: (row) => row[id] ?? 0,
  text: (row) => (row[id] === null || row[id] === undefined ? "–" : rateText(row[id])),
  value: (row) => row[id],
  className: (row) => (row[id] ? "" : "zero"),
});

/** Return the words for the pauses of a tube, or "". */
export function pauseText({ paused_in: puts, paused_out: takes }) {
  if (puts && takes) return "paused";
  return puts ? "puts paused" : takes ? "takes paused" : "";
}

/** Return the badge of a tube: paused, or ready jobs without a consumer. */
export function tubeStatus(row) {
  const paused = pauseText(row);
  if (paused) return [paused, "warn"];
  if (row.ready > 0 && row.consumers === 0 && row.taken === 0) return ["no consumers", "bad"];
  return ["", ""];
}

function statusCell() {
  const pill = h("span", { class: "pill", hidden: true });
  const update = (row) => {
    const [text, level] = tubeStatus(row);
    pill.hidden = !text;
    pill.className = `pill ${level}`;
    setText(pill, text);
  };
  return { element: pill, update };
}

/** The rates of each tube over the last minutes, by name. Rows of a table share them with the page. */
export class RateHistory {
  constructor() {
    this.lines = new Map();
  }

  line(name) {
    if (!this.lines.has(name)) this.lines.set(name, new Sparkline("Puts and acked jobs per second", 2));
    return this.lines.get(name);
  }

  /** Add a point for each row. */
  push(rows) {
    for (const { name, in_rate: put, ack_rate: left } of rows) {
      if (put !== null && put !== undefined) this.line(name).push([put, left]);
    }
  }

  forget(names) {
    for (const name of names) this.lines.delete(name);
  }
}

export const tubeColumns = (history) => [
  { id: "name", label: "Tube", sort: (row) => row.name, text: (row) => shown(row.name), value: (row) => row.name, link: (row) => tubeHref(row.name), title: (row) => shown(row.name, 1000) },
  { id: "status", label: "", name: "Status", tight: true, text: (row) => tubeStatus(row)[0], make: statusCell },
  { id: "type", label: "Type", second: true, sort: (row) => row.type, text: (row) => row.type },
  count("ready", "Ready"),
  count("taken", "Taken"),
  count("delayed", "Delayed", { second: true }),
  count("buried", "Buried", { className: (row) => (row.buried ? "alarm" : "zero") }),
  { id: "oldest_ms", label: "Oldest", hint: "How long the oldest ready job has been waiting", number: true, second: true, sort: (row) => row.oldest_ms, value: (row) => row.oldest_ms,
    text: (row) => (row.oldest_ms === null || row.oldest_ms === undefined ? "–" : durationText(row.oldest_ms)), className: (row) => (row.oldest_ms === null ? "zero" : "") },
  count("consumers", "Waiting", { second: true, hint: "Consumers that wait for a job of this tube" }),
  rate("in_rate", "In/s", "Jobs put per second"),
  rate("ack_rate", "Acked/s", "Jobs acked per second"),
  history && { id: "trend", label: "", name: "Trend", second: true, make: (row) => ({ element: history.line(row.name).element }) },
];
