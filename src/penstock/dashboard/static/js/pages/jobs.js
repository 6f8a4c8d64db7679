// Jobs: a search by tube, state and a condition. The address holds the search.

import { get, query } from "../api.js";
import { $, h } from "../dom.js";
import { countText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { bulk } from "../job_actions.js";
import { jobColumns } from "../job_columns.js";
import { shown } from "../names.js";
import { refusal } from "../rights.js";
import { LiveTable } from "../table.js";
import { button, empty, exportButtons, guarded, onClock, parameters, sentence, setParameters } from "../ui.js";

const STATES = ["", "ready", "taken", "delayed", "buried", "done"];
const PAGE = 100;

start(async (user) => {
  const wanted = parameters();
  const { tubes } = await get("/tubes?limit=1000&sort=name");
  const where = h("input", { type: "search", class: "grow mono", "aria-label": "Condition", "aria-describedby": "where-hint", placeholder: "body.user == 42 and nacks > 1", value: wanted.where ?? "", autocomplete: "off", spellcheck: "false" });
  const tube = h("select", { "aria-label": "Tube" }, h("option", { value: "" }, "All tubes"), tubes.map(({ name }) => h("option", { value: name, selected: name === wanted.tube }, shown(name, 60))));
  const state = h("select", { "aria-label": "State" }, STATES.map((each) => h("option", { value: each, selected: each === wanted.state }, each || "Any state")));
  const note = h("span", { role: "status" });
  const problem = h("div", { class: "alert bad", role: "alert", hidden: true });
  const more = button("Look further", { small: true, onclick: () => search(false) });
  const selection = h("div", { class: "actions" });
  const table = new LiveTable({ caption: "Jobs found", columns: jobColumns({ tube: true }), key: (job) => job.id, select: showSelection, rowsMax: 10000 });
  const nothing = h("div");
  const result = h("div", { class: "card flush" }, table.element, nothing,
    h("div", { class: "more-rows" }, note, h("div", { class: "actions" }, more, exportButtons("jobs", () => table.records()))));
  let cursor = "";
  let looked = 0;
  let number = 0;

  const filter = () => Object.fromEntries(Object.entries({ tube: tube.value, state: state.value, where: where.value.trim() }).filter(([, value]) => value));

  async function search(isNew) {
    const mine = (number += 1);
    if (isNew) {
      setParameters({ tube: tube.value, state: state.value, where: where.value.trim() });
      [cursor, looked] = ["", 0];
    }
    problem.hidden = true;
    try {
      const found = await get(`/jobs${query({ ...filter(), cursor, limit: PAGE })}`);
      if (mine !== number) return;
      cursor = found.cursor ?? "";
      looked += found.examined ?? found.jobs.length;
      table.update(found.jobs, { add: !isNew });
      show();
    } catch (error) {
      problem.textContent = sentence(error);
      problem.hidden = false;
    }
  }

  function show() {
    const count = table.rows.size;
    table.element.hidden = !count;
    more.hidden = !cursor;
    note.textContent = `${plural(count, "job")} found among ${countText(looked)}${cursor ? " looked at so far" : ""}`;
    nothing.replaceChildren(...(count ? [] : [Object.keys(filter()).length
      ? empty(cursor ? "Nothing found yet" : "No job matches", "A condition reads the fields of a job: body and its parts, key, priority, deliveries, nacks, reason, age in seconds.", "penstock job find --where 'nacks > 0'")
      : empty("There are no jobs", "", `penstock put emails '{"to":"ann@example.org"}'`)]));
  }

  function showSelection(selected) {
    const refused = refusal(user, "write");
    const ids = selected.map(({ id }) => id);
    const act = (label, action, danger) => button(label, { small: true, refused, danger, onclick: guarded(async () => (await bulk(label, { action, ids }, "that you selected", { danger })) && search(true)) });
    selection.replaceChildren(...(selected.length
      ? [h("span", { class: "muted" }, `${plural(selected.length, "job")} selected`), act("Dig", "dig"), act("Run now", "run"), act("Bury", "bury"), act("Delete", "delete", true)]
      : [button("All that match …", { small: true, refused, onclick: guarded(allThatMatch) })]));
  }

  async function allThatMatch() {
    const { ask, field } = await import("../ui.js");
    const chosen = await ask({
      title: "Change all jobs that match this search",
      text: "The next step shows how many jobs this is. Nothing is changed before.",
      label: "Show the plan",
      fields: [field("Action", { name: "action", options: [["dig", "Dig: return buried jobs to their tubes"], ["run", "Run now: end the delay"], ["bury", "Bury"], ["delete", "Delete"]] })],
      confirm: (form) => form.get("action"),
    });
    const labels = { dig: "Dig", run: "Run now", bury: "Bury", delete: "Delete" };
    if (chosen) await bulk(labels[chosen], { action: chosen, filter: filter() }, tube.value ? `of “${shown(tube.value)}”` : "of all tubes", { danger: chosen === "delete" });
    if (chosen) await search(true);
  }

  const form = h("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    search(true);
  } }, tube, state, where, h("button", { class: "button primary" }, "Search"));
  for (const each of [tube, state]) each.addEventListener("change", () => search(true));
  page({ title: "Jobs" }, form, h("p", { id: "where-hint", class: "only-read" }, "A condition like body.user == 42 and nacks > 1"), problem, h("div", { class: "filters" }, selection), result);
  showSelection([]);
  onClock(() => table.update(table.selectedRows(), { add: true }));
  $("#live").hidden = true;
  await search(true);
});
