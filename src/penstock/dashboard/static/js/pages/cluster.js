// The cluster: its nodes, the links between them, and what each node does now.

import { get } from "../api.js";
import { h } from "../dom.js";
import { countText } from "../format.js";
import { page, start } from "../frame.js";
import { shown } from "../names.js";
import { Stream } from "../stream.js";
import { LiveTable } from "../table.js";
import { facts } from "../tiles.js";
import { empty } from "../ui.js";

start(async () => {
  const nodes = new LiveTable({ caption: "Nodes", columns: NODE, key: (row) => row.id, sort: "address", descending: false });
  const state = facts();
  const alone = h("div", { class: "card", hidden: true }, empty("This node is not in a cluster", "Several nodes keep copies of jobs, so no job is lost if one fails.", "penstock cluster demo 3"));
  const show = async () => {
    const cluster = await get("/cluster");
    nodes.update(cluster.nodes);
    alone.hidden = cluster.nodes.length > 1;
    state.update(Object.entries(cluster.info).filter(([, value]) => typeof value !== "object").map(([name, value]) => [name.replace(/^cluster_/, "").replaceAll("_", " "), typeof value === "number" ? countText(value) : String(value)]));
  };
  page({ title: "Cluster" }, alone,
    h("section", { class: "card flush" }, h("header", {}, h("h2", {}, "Nodes")), nodes.element),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "State, as seen by this node")), state.element));
  const stream = new Stream("/events?topics=overview", { overview() {}, tick() {} });
  await stream.every(2000, show);
});

const FLAGS = { myself: "", noflags: "", fail: "failed", "fail?": "may have failed", handshake: "joining", leaving: "leaving", noaddr: "no address", nodisk: "cannot write its journal", nomem: "out of memory", paused: "has paused tubes" };

/** Return the state of a node in words. */
function stateText({ flags, reachable }) {
  const words = flags.map((flag) => FLAGS[flag] ?? flag).filter(Boolean);
  if (!words.length) return reachable ? "ok" : "unreachable";
  return words.join(", ");
}

const NODE = [
  { id: "address", label: "Node", sort: (row) => row.address, text: (row) => `${shown(row.address, 60)}${row.is_connected_to ? " (this dashboard's)" : ""}`, value: (row) => row.address },
  { id: "state", label: "State", sort: stateText, text: stateText, className: (row) => (stateText(row) === "ok" ? "" : "alarm") },
  { id: "link", label: "Link", text: (row) => (row.is_connected_to ? "–" : row.reachable ? "up" : "down"), className: (row) => (row.reachable ? "" : "alarm") },
  { id: "id", label: "Id", second: true, text: (row) => shown(row.id, 16), title: (row) => row.id, value: (row) => row.id },
];
