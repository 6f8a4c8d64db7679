// History: the tables of a lake, which the pipeline has made from the journal, and their newest rows.

import { get, query } from "../api.js";
import { $, h } from "../dom.js";
import { bytesText, countText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { shownOr } from "../names.js";
import { LiveTable } from "../table.js";
import { empty, exportButtons, guarded, parameters, setParameters } from "../ui.js";

const number = (id, label, text, more = {}) => ({ id, label, number: true, sort: (row) => row[id], text: (row) => text(row[id]), value: (row) => row[id], ...more });

start(async () => {
  $("#live").hidden = true;
  let lake;
  try {
    lake = await get("/lake");
  } catch (error) {
    if (error.code !== "NOLAKE") throw error;
    page({ title: "History" }, h("div", { class: "card" }, empty("There is no lake yet", error.message, "penstock pipeline once --lake ./lake")));
    return;
  }
  const rows = h("section", { class: "card flush", hidden: true });
  const show = guarded(async (name) => {
    setParameters({ table: name });
    const found = await get(`/lake/rows${query({ name, limit: 200 })}`);
    const table = new LiveTable({
      caption: `Newest rows of ${name}`,
      key: (row) => row.at,
      columns: found.columns.map((column) => ({ id: column, label: column, name_: true, text: (row) => shownOr(row[column] === null ? "" : String(row[column]), 120), value: (row) => row[column] })),
    });
    table.update(found.rows.map((row, at) => ({ ...row, at })));
    rows.hidden = false;
    rows.replaceChildren(h("header", {}, h("h2", {}, name), h("span", { class: "muted" }, `the newest ${plural(found.rows.length, "row")} of its newest file`),
      h("div", { class: "actions" }, exportButtons(name.replaceAll("/", "-"), () => found.rows))), found.rows.length ? table.element : empty("This table has no rows", "", "penstock pipeline once --lake ./lake"));
  });
  const tables = new LiveTable({
    caption: "Tables of the lake",
    key: (row) => row.name,
    columns: [
      { id: "name", label: "Table", sort: (row) => row.name, text: (row) => row.name, make: (row) => ({ element: h("button", { type: "button", class: "button plain small", onclick: () => show(row.name) }, row.name) }) },
      number("rows", "Rows", countText),
      number("bytes", "Size", bytesText),
      number("files", "Files", countText, { second: true }),
      { id: "columns", label: "Columns", clip: true, second: true, text: (row) => row.columns.join(", ") },
    ],
  });
  tables.update(lake.tables);
  page({ title: "History", lead: `The lake after turn ${countText(lake.turn)} of the pipeline. Its gold tables count by ${lake.grain}.` },
    h("section", { class: "card flush" }, tables.element), rows);
  const wanted = parameters().table;
  if (wanted) await show(wanted);
});
