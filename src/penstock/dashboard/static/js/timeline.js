// The timeline of a job. Its words come from the API, which describes events for all programs in the same way.

import { h } from "./dom.js";
import { momentText } from "./format.js";
import { shown } from "./names.js";

/** Return the timeline. A line without a time says how long the job was in a state. */
export function timeline(lines, events) {
  const states = new Map(events.map(({ position, after }) => [position, after]));
  return h("ol", { class: "timeline" }, lines.map((line) => (line.time_ms === undefined || line.time_ms === null
    ? h("li", { class: "gap" }, shown(line.words, 400))
    : h("li", { class: states.get(line.position) },
      h("time", { class: "when", datetime: new Date(line.time_ms).toISOString() }, momentText(line.time_ms, true)),
      h("span", { class: "words" }, shown(line.words, 600))))));
}
