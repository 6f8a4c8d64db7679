// Consumers and sessions: who holds jobs, who waits for them, and from where.

import { get, send } from "../api.js";
import { h } from "../dom.js";
import { agoText, countText, durationText, momentText, plural } from "../format.js";
import { page, start } from "../frame.js";
import { shown } from "../names.js";
import { refusal } from "../rights.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { ask, button, empty, exportButtons, guarded, toast } from "../ui.js";

start(async (user) => {
  const refused = refusal(user, "admin");
  const sessions = new LiveTable({ caption: "Sessions", columns: SESSION, key: (row) => row.number, sort: "held" });
  const clients = new LiveTable({ caption: "Connections", sort: "id", key: (row) => row.id, columns: [...CLIENT, { id: "close", label: "", name: "Close", tight: true, make: (row) => ({ element: button("Close", { small: true, plain: true, refused, onclick: guarded(() => close(row)) }) }) }] });
  const noSessions = h("div", {}, empty("No sessions", "A session is made when a client connects. It holds the jobs that the client takes.", "penstock take emails --timeout 1m"));
  const show = async () => {
    const [held, connected] = await Promise.all([get("/sessions?limit=1000"), get("/clients").catch(() => ({ clients: null }))]);
    sessions.update(held.sessions);
    sessions.element.hidden = !held.sessions.length;
    noSessions.hidden = held.sessions.length > 0;
    if (connected.clients) clients.update(connected.clients);
    connections.hidden = !connected.clients;
  };
  const connections = h("section", { class: "card flush" }, h("header", {}, h("h2", {}, "Connections"), h("div", { class: "actions" }, exportButtons("connections", () => clients.records()))), clients.element);
  page({ title: "Consumers" },
    h("section", { class: "card flush" }, h("header", {}, h("h2", {}, "Sessions"), h("span", { class: "muted" }, "A session owns the jobs that it took until it finishes them."), h("div", { class: "actions" }, exportButtons("sessions", () => sessions.records()))), sessions.element, noSessions),
    connections);
  const stream = new Stream("/events?topics=overview", { overview() {}, tick() {} });
  await stream.every(2000, show);
});

const text = (id, label, more = {}) => ({ id, label, sort: (row) => row[id] ?? "", text: (row) => (row[id] ? shown(row[id], 60) : "–"), value: (row) => row[id], className: (row) => (row[id] ? "" : "zero"), ...more });
const count = (id, label, more = {}) => ({ id, label, number: true, sort: (row) => row[id] ?? 0, text: (row) => countText(row[id] ?? 0), value: (row) => row[id], className: (row) => (row[id] ? "" : "zero"), ...more });
const since = (id, label) => ({ id, label, number: true, second: true, sort: (row) => row[id] ?? 0, text: (row) => (row[id] ? agoText(row[id]) : "–"), title: (row) => (row[id] ? momentText(row[id]) : ""), value: (row) => row[id] });

const tubeCounts = (counts) => Object.entries(counts ?? {}).map(([tube, number]) => `${shown(tube, 40)}${number > 1 ? ` × ${countText(number)}` : ""}`).join(", ");

const SESSION = [
  { ...text("name", "Client"), text: (row) => shown(row.name || `session ${row.number}`, 60) },
  text("user", "User", { second: true }),
  { id: "address", label: "Address", second: true, text: (row) => row.clients.map(({ address }) => address).filter(Boolean).map((address) => shown(address, 50)).join(", ") || "–", sort: (row) => row.clients[0]?.address ?? "", className: (row) => (row.clients[0]?.address ? "" : "zero") },
  count("held", "Jobs held"),
  { id: "holds", label: "Of tubes", name_: true, text: (row) => tubeCounts(row.holds), title: (row) => tubeCounts(row.holds) },
  { id: "waiting", label: "Waits on", name_: true, text: (row) => tubeCounts(row.waiting), title: (row) => tubeCounts(row.waiting) },
  { id: "grace_ms", label: "Grace time", hint: "How long its jobs stay taken after its connection is lost", number: true, second: true, sort: (row) => row.grace_ms, text: (row) => durationText(row.grace_ms), value: (row) => row.grace_ms },
  { ...since("since_ms", "Since"), text: (row) => (row.since_ms ? agoText(row.since_ms) : row.ends_ms ? `ends ${agoText(row.ends_ms)}` : "–") },
];

const CLIENT = [
  { ...text("id", "Connection", { sort: (row) => Number(row.id) }) },
  text("name", "Client"),
  text("user", "User", { second: true }),
  text("address", "Address"),
  { id: "waits_for", label: "Waits for", text: (row) => (row.waits_for === "no" ? "–" : row.waits_for), value: (row) => row.waits_for, className: (row) => (row.waits_for === "no" ? "zero" : "") },
  text("command", "Last command", { second: true }),
  { id: "idle_s", label: "Idle", number: true, second: true, sort: (row) => row.idle_s, text: (row) => durationText(row.idle_s * 1000), value: (row) => row.idle_s },
  count("held_jobs", "Jobs held"),
];

function close(row) {
  return ask({
    title: `Close connection ${row.id}`,
    text: `${shown(row.name || "The client")} at ${shown(row.address ?? "an unknown address")} ${row.held_jobs ? `holds ${plural(row.held_jobs, "job")}. They return to their tubes, unless its session has a grace time.` : "holds no jobs."}`,
    label: "Close the connection",
    danger: true,
    confirm: async () => {
      await send("DELETE", `/clients/${row.id}`);
      toast(`Connection ${row.id} is closed.`);
    },
  });
}
