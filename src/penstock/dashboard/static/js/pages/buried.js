// Buried jobs, grouped by cause, and their redrive: back to the tube, at a rate, after a dry run.

import { get, query, send } from "../api.js";
import { $, h, root } from "../dom.js";
import { agoText, countText, momentText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { jobHref, shortId, shown, tubeHref, tubePath } from "../names.js";
import { bulk } from "../job_actions.js";
import { refusal } from "../rights.js";
import { Stream } from "../stream.js";
import { ask, button, empty, exportButtons, field, fields, guarded, onClock, parameters, toast } from "../ui.js";

start(async (user) => {
  const only = parameters().tube;
  const list = h("div");
  let last = "";
  let records = [];
  const show = async () => {
    const { tubes } = await get("/dead-letters");
    const buried = tubes.filter(({ name }) => only === undefined || name === only);
    const found = await Promise.all(buried.map(async (row) => ({ row, ...(await get(`${tubePath(row.name)}/dead-letters`)) })));
    const text = JSON.stringify(found.map(({ row, causes }) => [row.name, row.buried, causes]));
    // The list is drawn anew only if it has changed, and not while the user works with it.
    const chosen = getSelection();
    const isBusy = $("dialog[open]") || list.contains(document.activeElement) || (!chosen.isCollapsed && list.contains(chosen.anchorNode));
    if (text === last || (isBusy && last)) return;
    last = text;
    records = found.flatMap(({ row, causes }) => causes.map((each) => ({ tube: row.name, ...each })));
    list.replaceChildren(...(found.length
      ? found.sort((a, b) => b.row.buried - a.row.buried).map((each) => tubeCard(user, each, again))
      : [h("div", { class: "card" }, empty("No buried jobs", "A job is buried if it fails too often, or if its consumer buries it. This command does the latter.", "penstock bury ID --reason \"no such address\""))]));
  };
  const again = () => {
    document.activeElement?.blur();
    return show();
  };
  page({ title: "Buried", actions: exportButtons("buried", () => records), lead: "Jobs that failed too often or were set aside, grouped by the cause of the last failure." }, list);
  const stream = new Stream("/events?topics=overview", { overview() {}, tick() {} });
  onClock(() => {
    last = "";
    show();
  });
  await stream.every(3000, show);
});

const HEADS = [["Cause"], ["Jobs", "number"], ["Oldest put", "second tight"], ["Example", "second tight"], ["", "tight"]];

function tubeCard(user, { row, causes, examined, buried, others }, again) {
  const refused = refusal(user, "write", row.name);
  const { name } = row;
  const redriveAll = button("Redrive all", { small: true, refused, onclick: guarded(() => redrive(name, null, row.buried).then(again)) });
  const deleteAll = button("Delete all", { small: true, refused, danger: true, onclick: guarded(() => bulk("Delete", { action: "delete", filter: { tube: name, state: ["buried"] } }, `buried in “${shown(name)}”`, { danger: true }).then(again)) });
  const heads = HEADS.map(([label, className]) => h("th", { scope: "col", class: className }, label || h("span", { class: "only-read" }, "Actions")));
  const rows = causes.map((each) => h("tr", {},
    h("th", { scope: "row", class: "cause" }, shown(each.cause, 400)),
    h("td", { class: "number" }, countText(each.jobs)),
    h("td", { class: "second tight", title: momentText(each.oldest_ms) }, agoText(each.oldest_ms)),
    h("td", { class: "second tight" }, h("a", { href: jobHref(each.example), title: each.example }, shortId(each.example))),
    h("td", { class: "tight" }, button("Redrive", { small: true, refused, onclick: guarded(() => redrive(name, each.cause, each.jobs).then(again)) }))));
  const notes = [examined < buried && `The causes of ${countText(examined)} of ${countText(buried)} buried jobs.`, others && `${plural(others, "job has", "jobs have")} other causes.`].filter(Boolean);
  return h("section", { class: "card flush" },
    h("header", {}, h("h2", {}, h("a", { href: tubeHref(name) }, shown(name))), h("span", { class: "pill buried" }, plural(row.buried, "job")),
      h("div", { class: "actions" }, h("a", { class: "button small", href: `${root}/jobs${query({ tube: name, state: "buried" })}` }, "List"), redriveAll, deleteAll)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Causes in ${shown(name)}` },
      h("table", {}, h("caption", { class: "only-read" }, `Causes in ${shown(name)}`), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))),
    notes.length ? h("div", { class: "more-rows" }, notes.join(" ")) : "");
}

/** Return a condition for the reasons of a cause, in which "…" stands for ids and numbers. */
function conditionOf(cause) {
  if (cause === "no reason given") return "reason == null";
  const parts = cause.split("…").map((part) => part.trim()).filter(Boolean);
  return parts.map((part) => `${JSON.stringify(part)} in reason`).join(" and ") || "reason != null";
}

/** Ask how many jobs to return, and how fast. A dry run shows how many it would be. */
function redrive(tube, cause, count) {
  const path = `${tubePath(tube)}/redrive`;
  const only = cause === null ? {} : { where: conditionOf(cause) };
  const plan = h("div", { class: "plan", role: "status" }, "Counting …");
  send("POST", path, { ...only, dry_run: true }).then(
    ({ matched, cursor }) => plan.replaceChildren(h("b", {}, countText(matched)), ` ${matched === 1 ? "job" : "jobs"}${cursor ? " of those looked at so far" : ""} would return to ${shown(tube)}.`),
    (error) => (plan.textContent = error.message));
  return ask({
    title: `Redrive buried jobs of “${shown(tube)}”`,
    text: cause === null ? "All causes. The jobs return to the tube and are delivered again, so fix the causes first." : `Cause: ${shown(cause, 200)}. The jobs return to the tube and are delivered again, so fix the cause first.`,
    label: "Redrive",
    fields: [plan, fields(
      field("At most", { name: "limit", type: "number", value: String(count), min: 1, max: 100000, required: true, hint: "Number of jobs" }),
      field("Rate", { name: "rate", type: "number", min: 1, placeholder: "no limit", hint: "Jobs per second" }))],
    confirm: async (form) => {
      const request = { ...only, limit: Number(form.get("limit")) };
      if (form.get("rate")) request.rate = Number(form.get("rate"));
      let done = 0;
      let cursor = null;
      do {
        const part = await send("POST", path, { ...request, limit: request.limit - done, ...(cursor ? { cursor } : {}) });
        done += part.done;
        cursor = part.done ? part.cursor : null;
        plan.replaceChildren(h("b", {}, countText(done)), " jobs have returned.");
      } while (cursor && done < request.limit);
      toast(`${plural(done, "job")} of ${shown(tube)} redriven.`);
      return done;
    },
  });
}
