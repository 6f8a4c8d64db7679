// Buried jobs, grouped by cause, and their redrive: back to the tube, at a rate, after a dry run.

import { get, query, send } from "../api.js";
import { $, h, root } from "../dom.js";
import { agoText, countText, momentText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { jobHref, shortId, shown, tubeHref, tubePath } from "../names.js";
import { refusal } from "../rights.js";
import { Stream } from "../stream.js";
import { ask, button, empty, exportButtons, field, fields, guarded, onClock, parameters, toast } from "../ui.js";

start(async (user) => {
  const only = parameters().tube;
  const list = h("div");
  const records = [];
  const show = async () => {
    const { tubes } = await get("/tubes?limit=1000&sort=-buried");
    const buried = tubes.filter((row) => row.buried > 0 && (only === undefined || row.name === only));
    const found = await Promise.all(buried.map(async (row) => ({ row, ...(await get(`${tubePath(row.name)}/dead-letters`)) })));
    const text = JSON.stringify(found);
    if (text === show.last || $("dialog[open]")) return;
    if (list.contains(document.activeElement) && show.last !== undefined && document.activeElement.matches("button")) return;
    show.last = text;
    records.splice(0, records.length, ...found.flatMap(({ row, groups }) => groups.map((group) => ({ tube: row.name, ...group }))));
    list.replaceChildren(...(found.length
      ? found.sort((a, b) => b.row.buried - a.row.buried).map((each) => tubeCard(user, each, show))
      : [h("div", { class: "card" }, empty("No buried jobs", "A job is buried if it fails too often, or if its consumer buries it.", "penstock dlq ls"))]));
  };
  page({ title: "Buried", actions: exportButtons("buried", () => records), lead: "Jobs that failed too often, grouped by the reason of the last failure." }, list);
  const stream = new Stream("/events?topics=overview", { overview() {}, tick() {} });
  onClock(() => {
    show.last = "";
    show();
  });
  await stream.every(3000, show);
});

function tubeCard(user, { row, groups, scanned, is_complete: isComplete }, again) {
  const refused = refusal(user, "write", row.name);
  const redriveAll = button("Redrive all", { small: true, refused, onclick: guarded(() => redrive(row.name, null, row.buried).then(again)) });
  return h("section", { class: "card flush" },
    h("header", {}, h("h2", {}, h("a", { href: tubeHref(row.name) }, shown(row.name))), h("span", { class: "pill buried" }, plural(row.buried, "job")),
      h("div", { class: "actions" }, h("a", { href: `${root}/jobs${query({ tube: row.name, state: "buried" })}` }, "List"), redriveAll)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Causes in ${shown(row.name)}` }, h("table", {}, h("caption", { class: "only-read" }, `Causes in ${shown(row.name)}`),
      h("thead", {}, h("tr", {}, ["Cause", "Jobs", "Newest", "Example", "Actions"].map((text, at) => h("th", { scope: "col", class: at === 1 ? "number" : at === 2 || at === 3 ? "second tight" : null }, at === 4 ? h("span", { class: "only-read" }, text) : text)))),
      h("tbody", {}, groups.map((group) => h("tr", {},
        h("th", { scope: "row", class: "clip", title: shown(group.reason ?? "", 1000) }, group.reason === null || group.reason === "" ? h("span", { class: "muted" }, "no reason was given") : shown(group.reason, 300)),
        h("td", { class: "number" }, countText(group.count)),
        h("td", { class: "second tight", title: group.newest_ms ? momentText(group.newest_ms) : null }, group.newest_ms ? agoText(group.newest_ms) : ""),
        h("td", { class: "second tight" }, group.example ? h("a", { href: jobHref(group.example) }, shortId(group.example)) : ""),
        h("td", { class: "tight" }, h("div", { class: "actions" },
          button("Redrive", { small: true, refused, onclick: guarded(() => redrive(row.name, group, group.count).then(again)) })))))))),
    isComplete === false ? h("div", { class: "more-rows" }, `The causes of the first ${countText(scanned)} buried jobs.`) : "");
}

/** Ask how many jobs to return, and how fast. The dry run shows how many it would be. */
async function redrive(tube, group, count) {
  const cause = group ? `, cause: ${shown(group.reason || "no reason", 80)}` : "";
  const where = group ? group.where ?? `reason == ${JSON.stringify(group.reason ?? null)}` : undefined;
  const plan = h("div", { class: "plan", role: "status" }, "Counting …");
  const dryRun = (wanted) => send("POST", `${tubePath(tube)}/redrive`, { where, count: wanted, dry_run: true });
  dryRun(count).then(
    (answer) => plan.replaceChildren(h("b", {}, countText(answer.count)), ` ${answer.count === 1 ? "job" : "jobs"} would return to ${shown(tube)}.`),
    (error) => (plan.textContent = error.message));
  return ask({
    title: `Redrive buried jobs of “${shown(tube)}”${cause}`,
    text: "The jobs return to the tube and are delivered again. Fix the cause first.",
    label: "Redrive",
    fields: [plan, fields(
      field("At most", { name: "count", type: "number", value: String(count), min: 1, required: true }),
      field("Rate", { name: "rate", type: "number", min: 0, placeholder: "no limit", hint: "Jobs per second" }))],
    confirm: async (form) => {
      const request = { where, count: Number(form.get("count")), dry_run: false };
      if (form.get("rate")) request.rate = Number(form.get("rate"));
      const answer = await send("POST", `${tubePath(tube)}/redrive`, request);
      toast(`${plural(answer.count, "job")} of ${shown(tube)} redriven.`);
      return answer.count;
    },
  });
}
