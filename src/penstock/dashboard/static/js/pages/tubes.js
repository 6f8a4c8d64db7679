// Tubes: a table of all tubes, updated each second.

import { get, send } from "../api.js";
import { h, root } from "../dom.js";
import { countText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { shown, tubeHref, tubePath } from "../names.js";
import { matches, refusal } from "../rights.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { RateHistory, tubeColumns } from "../tube_columns.js";
import { createTube } from "../tube_actions.js";
import { ask, button, empty, exportButtons, guarded, parameters, setParameters, toast } from "../ui.js";

start(async (user) => {
  const wanted = parameters();
  const rows = new Map();
  const history = new RateHistory();
  const filter = h("input", { type: "search", class: "grow", "aria-label": "Filter by name", placeholder: "Filter by name, * for any text", value: wanted.match ?? "", autocomplete: "off", spellcheck: "false" });
  const sum = h("span", {});
  const bulk = h("div", { class: "actions" });
  const table = new LiveTable({
    caption: "Tubes",
    columns: tubeColumns(history),
    key: (row) => row.name,
    sort: wanted.sort ?? "ready",
    descending: wanted.order !== "asc",
    onSort: (sort, descending) => setParameters({ sort, order: descending ? "" : "asc" }),
    select: (selected) => showBulk(selected),
    rowsMax: 5000,
  });
  const none = h("div", {}, empty("There are no tubes yet", "A tube is made by the first put, or by the button above.", `penstock put emails '{"to":"ann@example.org"}'`));
  const body = h("div", { class: "card flush" }, table.element, h("div", { class: "more-rows" }, sum, h("div", { class: "actions" }, exportButtons("tubes", () => table.records()))));
  const refused = refusal(user, "write");

  function showBulk(selected) {
    bulk.replaceChildren(...(selected.length
      ? [h("span", { class: "muted" }, `${plural(selected.length, "tube")} selected`),
        button("Pause takes", { small: true, refused, onclick: () => pauseAll(selected, "out") }),
        button("Pause puts", { small: true, refused, onclick: () => pauseAll(selected, "in") }),
        button("Resume", { small: true, refused, onclick: () => pauseAll(selected, "") })]
      : []));
  }

  function pauseAll(selected, what) {
    const ready = selected.reduce((total, row) => total + row.ready, 0);
    return ask({
      title: what ? `Pause ${what === "in" ? "puts into" : "takes from"} ${plural(selected.length, "tube")}` : `Resume ${plural(selected.length, "tube")}`,
      text: `${selected.slice(0, 12).map((row) => shown(row.name, 40)).join(", ")}${selected.length > 12 ? ", …" : ""}, with ${countText(ready)} ready jobs together.`,
      label: what ? "Pause" : "Resume",
      confirm: async () => {
        for (const { name } of selected) await send("POST", `${tubePath(name)}/${what ? "pause" : "resume"}`, what ? { puts: what === "in", takes: what === "out" } : undefined);
        toast(`${plural(selected.length, "tube")} ${what ? "paused" : "resumed"}.`);
      },
    });
  }

  function show() {
    const text = filter.value.trim();
    const pattern = /[*?[]/.test(text) ? text : `*${text}*`;
    const found = text ? [...rows.values()].filter(({ name }) => matches(pattern, name)) : [...rows.values()];
    table.update(found);
    none.hidden = rows.size > 0;
    body.hidden = rows.size === 0;
    sum.textContent = text ? `${countText(found.length)} of ${plural(rows.size, "tube")}` : plural(rows.size, "tube");
  }

  function receive({ full, tubes, gone }) {
    if (full) rows.clear();
    for (const row of tubes) rows.set(row.name, row);
    for (const name of gone) rows.delete(name);
    history.forget(gone);
    history.push(rows.values());
    show();
  }

  filter.addEventListener("input", () => {
    setParameters({ match: filter.value.trim() });
    show();
  });
  const create = guarded(async () => {
    const name = await createTube();
    if (name !== undefined) location.assign(tubeHref(name));
  });
  page({ title: "Tubes", actions: [button("Create a tube", { onclick: create, refused })] },
    h("div", { class: "filters" }, filter, bulk), none, body);
  const first = await get("/tubes?limit=1000&sort=created");
  receive({ full: true, tubes: first.tubes, gone: [] });
  new Stream("/events?topics=tubes", { tubes: receive, tick: () => history.push(rows.values()) });
});
