// Settings: the server that the dashboard shows, and how this browser shows it.

import { get } from "../api.js";
import { meter } from "../charts.js";
import { h } from "../dom.js";
import { bytesText, clock, countText, durationText } from "../format.js";
import { page, start } from "../frame.js";
import { shown } from "../names.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { facts } from "../tiles.js";
import { exportButtons, setTheme } from "../ui.js";

const card = (title, ...parts) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), parts);
const yes = (value) => (value ? "yes" : "no");

start(async (user) => {
  const server = facts();
  const storage = facts();
  const memory = h("div");
  const settings = new LiveTable({ caption: "Settings of the node", key: (row) => row.name, sort: "name", descending: false, columns: [
    { id: "name", label: "Setting", sort: (row) => row.name, text: (row) => row.name },
    { id: "value", label: "Value", text: (row) => shown(String(row.value), 200) },
  ] });
  const all = h("section", { class: "card flush", hidden: true }, h("header", {}, h("h2", {}, "Settings of the node"), h("div", { class: "actions" }, exportButtons("settings", () => settings.records()))), settings.element);

  const show = async () => {
    const node = await get("/server");
    server.update([
      ["Version", `${node.version} (${node.compiled ? "compiled" : "interpreted"}, Python ${node.python})`],
      ["Uptime", durationText(node.uptime_s * 1000)],
      ["Process", String(node.process_id)],
      ["Connections", `${countText(node.clients)}, of which ${countText(node.waiting_clients)} wait for a job`],
      ["Commands", `${countText(node.commands_per_s)} per second`],
    ]);
    const most = node.memory_bytes_max;
    memory.replaceChildren(...(most ? [meter(node.memory_bytes / most, `Memory: ${bytesText(node.memory_bytes)} of ${bytesText(most)}`)] : []));
    const { journal } = node;
    storage.update([
      ["Memory of jobs", `${bytesText(node.memory_bytes)}${most ? ` of ${bytesText(most)}` : ", no limit"}`],
      ["Memory of the process", bytesText(node.memory_rss_bytes)],
      ["Journal", journal.enabled ? "on" : "off: jobs are lost when the server stops"],
      ["Size of the journal", journal.bytes === null ? null : bytesText(journal.bytes)],
      ["Sync to disk", journal.fsync],
      ["Duration of the last sync", journal.sync_ms === null || journal.sync_ms === undefined ? null : `${journal.sync_ms} ms`],
      ["Position", journal.written === null ? null : `${countText(journal.written)}, durable up to ${countText(journal.durable ?? 0)}`],
      ["Last write succeeded", yes(journal.last_write_ok)],
    ]);
  };
  const rights = facts([
    ["User", user.has_users ? shown(user.user) : "everyone on this machine, because the node has no users"],
    ["Rights", user.classes.join(", ")],
    ["Tubes", user.tubes.map((pattern) => shown(pattern, 60)).join(", ")],
    ["Signed in until", user.expires_ms ? new Date(user.expires_ms).toLocaleString() : null],
  ]);
  const theme = document.documentElement.dataset.theme || "system";
  const looks = h("div", { class: "tabs", role: "group", "aria-label": "Theme" }, ["system", "light", "dark"].map((name) =>
    h("button", { type: "button", "data-set-theme": name, "aria-pressed": String(name === theme), onclick: () => setTheme(name) }, name)));

  page({ title: "Settings" },
    h("div", { class: "grid" }, card("Server", server.element), card("Memory and journal", memory, storage.element)),
    h("div", { class: "grid" }, card("Your rights", rights.element),
      card("This browser", h("p", { class: "lead" }, "The theme. ", h("kbd", {}, "t"), " changes it, too."), looks,
        h("p", { class: "note" }, "Times are shown in ", clock.utc ? "UTC" : "local time", ". ", h("kbd", {}, "u"), " changes this, and ", h("kbd", {}, "?"), " lists all keys."))),
    all);
  const stream = new Stream("/events?topics=overview", { overview() {}, tick() {} });
  get("/settings").then(({ settings: found }) => {
    settings.update(Array.isArray(found) ? found : Object.entries(found).map(([name, value]) => ({ name, value })));
    all.hidden = false;
  }, () => {});
  await stream.every(2000, show);
});
