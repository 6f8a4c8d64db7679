// The journal: new events as they happen, with filters, and older ones on request.

import { get, query } from "../api.js";
import { h, root } from "../dom.js";
import { countText, momentText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { jobHref, shortId, shown, shownOr, tubeHref } from "../names.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { empty, exportButtons, onClock, parameters, setParameters } from "../ui.js";

const SHOWN_MAX = 500;

start(async () => {
  const wanted = parameters();
  const { tubes } = await get("/tubes?limit=1000");
  const tube = h("select", { "aria-label": "Tube" }, h("option", { value: "" }, "All tubes"), tubes.map(({ name }) => h("option", { value: name, selected: name === wanted.tube }, shown(name, 60))));
  const event = h("input", { type: "search", "aria-label": "Event", placeholder: "Event, for example nacked", value: wanted.event ?? "", list: "events", autocomplete: "off" });
  const count = h("span", {});
  const table = new LiveTable({ caption: "Events, newest first", columns: COLUMNS, key: (row) => row.position, sort: "position", rowsMax: SHOWN_MAX * 2 });
  const nothing = h("div", {}, empty("No events yet", "Events appear here as they happen. The journal keeps them for a week, unless the server has another setting.", `penstock put emails '{"to":"ann@example.org"}'`));
  let events = [];
  let stream = null;

  const filter = () => query({ tube: tube.value, event: event.value.trim() });
  function show() {
    table.update(events);
    nothing.hidden = events.length > 0;
    table.element.hidden = !events.length;
    count.textContent = `${plural(events.length, "event")}${events.length === SHOWN_MAX ? ", the newest" : ""}`;
  }
  let waiting = false;
  function receive(found) {
    const newest = events[0]?.position ?? 0;
    events = [...found.events.filter(({ position }) => position > newest), ...events];
    if (events.length > SHOWN_MAX) events.length = SHOWN_MAX;
    // Many events in a moment are shown once.
    if (!waiting) {
      waiting = true;
      setTimeout(() => {
        waiting = false;
        show();
      }, 200);
    }
  }
  async function reload() {
    setParameters({ tube: tube.value, event: event.value.trim() });
    events = [];
    stream?.move(`/journal/stream${filter()}`);
    show();
  }
  for (const each of [tube, event]) each.addEventListener("change", reload);

  page({ title: "Journal", lead: "Every change of every job, as it happens." },
    h("div", { class: "filters" }, tube, event), 
    h("div", { class: "card flush" }, table.element, nothing, h("div", { class: "more-rows" }, count, h("div", { class: "actions" }, exportButtons("journal", () => events)))));
  show();
  stream = new Stream(`/journal/stream${filter()}`, { events: receive, tick() {} });
  onClock(() => table.update(events));
});

const COLUMNS = [
  { id: "time_ms", label: "Time", tight: true, text: (row) => momentText(row.time_ms, true), value: (row) => new Date(row.time_ms).toISOString() },
  { id: "event", label: "Event", text: (row) => row.event },
  { id: "tube", label: "Tube", text: (row) => shownOr(row.tube, 50), link: (row) => (row.tube === undefined ? null : tubeHref(row.tube)), value: (row) => row.tube, name_: true },
  { id: "job", label: "Job", text: (row) => (row.job ? shortId(row.job) : ""), link: (row) => (row.job ? jobHref(row.job) : null), value: (row) => row.job, tight: true },
  { id: "after", label: "Became", second: true, tight: true, text: (row) => (row.before && row.before !== row.after ? `${row.before} → ${row.after}` : row.after ?? "") },
  { id: "actor", label: "By", second: true, text: (row) => shownOr([row.actor_name, row.actor_user && `(${row.actor_user})`].filter(Boolean).join(" "), 60), name_: true },
  { id: "reason", label: "Reason", second: true, clip: true, text: (row) => shownOr(row.reason, 200) },
  { id: "position", label: "Position", number: true, second: true, sort: (row) => row.position, text: (row) => countText(row.position), value: (row) => row.position },
];
