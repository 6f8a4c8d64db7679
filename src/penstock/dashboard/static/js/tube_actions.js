// Changes of a tube. Each asks first, with the name of the tube and the number of jobs.

import { send } from "./api.js";
import { root } from "./dom.js";
import { countText, plural } from "./format.js";
import { shown, tubePath } from "./names.js";
import { refusal } from "./rights.js";
import { ask, button, field, fields, toast } from "./ui.js";

const named = (tube) => `“${shown(tube)}”`;
const paused = ({ paused_in: puts, paused_out: takes } = {}) => (puts && takes ? "both" : puts ? "in" : takes ? "out" : "none");

/** Return the buttons for a tube. `row` returns its newest numbers. */
export function tubeButtons(user, tube, row) {
  const can = (needed) => refusal(user, needed, tube);
  const one = (label, needed, onclick, more = {}) => button(label, { refused: can(needed), onclick: () => onclick(tube, row()), ...more });
  return [
    one("Put a job", "write", putJob, { primary: true }),
    one("Kick", "write", kick),
    one("Pause", "write", pause),
    one("Alter", "admin", alter),
    one("Release taken", "admin", releaseTaken),
    one("Truncate", "admin", truncate, { danger: true }),
    one("Drop", "admin", drop, { danger: true }),
  ];
}

export function putJob(tube, row) {
  const hasKeys = row?.has_keys ?? true;
  return ask({
    title: `Put a job into ${named(tube)}`,
    label: "Put",
    wide: true,
    fields: [
      field("Body", { name: "body", type: "area", value: "{}", rows: 6 }),
      fields(
        field("Body is", { name: "as", options: [["json", "JSON"], ["text", "text"], ["base64", "bytes, as base64"]] }),
        field("Delay", { name: "delay", placeholder: "0", hint: "Wait before it can be taken: 30s, 5m" }),
        field("Priority", { name: "priority", type: "number", hint: "Lower numbers are served first" }),
        hasKeys && field("Key", { name: "key", hint: "For tubes that limit jobs per key" }),
        field("Ttr", { name: "ttr", hint: "Time a consumer has for it" }),
        field("Ttl", { name: "ttl", hint: "It expires after this time" }),
      ),
    ],
    confirm: async (form) => {
      const job = { body: form.get("body"), as: form.get("as") };
      if (job.as === "json") {
        try {
          job.body = JSON.parse(job.body);
        } catch (error) {
          throw new Error(`The body is not JSON: ${error.message}.`);
        }
      }
      for (const name of ["delay", "ttr", "ttl", "key"]) if (form.get(name)) job[name] = form.get(name);
      if (form.get("priority")) job.priority = Number(form.get("priority"));
      const answer = await send("POST", `${tubePath(tube)}/jobs`, job);
      toast(`Put into ${tube}: ${answer.id ?? answer.ids?.[0]}`);
      return answer;
    },
  });
}

export function kick(tube, row) {
  const buried = row?.buried ?? 0;
  return ask({
    title: `Kick buried jobs of ${named(tube)}`,
    text: buried ? `${plural(buried, "job is", "jobs are")} buried. Kicked jobs return to the tube, in the order in which it serves jobs.` : "No job of this tube is buried now.",
    label: "Kick",
    fields: [field("How many", { name: "count", type: "number", value: String(Math.max(1, buried)), min: 1, max: 100000, required: true })],
    confirm: async (form) => {
      const answer = await send("POST", `${tubePath(tube)}/kick`, { count: Number(form.get("count")) });
      toast(`${plural(answer.kicked, "job")} of ${tube} kicked.`);
    },
  });
}

export function pause(tube, row) {
  return ask({
    title: `Pause ${named(tube)}`,
    text: `It has ${countText(row?.ready ?? 0)} ready jobs and ${plural(row?.consumers ?? 0, "waiting consumer")}. Taken jobs can still be finished.`,
    label: "Apply",
    fields: [field("Pause", { name: "what", value: paused(row ?? {}), options: [["none", "nothing: resume the tube"], ["out", "takes: consumers wait"], ["in", "puts: producers are refused"], ["both", "puts and takes"]] })],
    confirm: async (form) => {
      const what = form.get("what");
      if (what === "none") await send("POST", `${tubePath(tube)}/resume`);
      else await send("POST", `${tubePath(tube)}/pause`, { puts: what !== "out", takes: what !== "in" });
      toast(what === "none" ? `${tube} is resumed.` : `${tube} is paused.`);
    },
  });
}

export function releaseTaken(tube, row) {
  return ask({
    title: `Return all taken jobs of ${named(tube)}`,
    text: `${plural(row?.taken ?? 0, "job is", "jobs are")} taken now. They return to the tube at once, although consumers may still work on them. Those consumers can no longer ack them.`,
    label: `Return ${plural(row?.taken ?? 0, "job")}`,
    danger: true,
    confirm: async () => {
      const answer = await send("POST", `${tubePath(tube)}/release`);
      toast(`${plural(answer.jobs, "job")} of ${tube} returned.`);
    },
  });
}

const total = (row) => ["ready", "taken", "delayed", "buried", "done"].reduce((sum, state) => sum + (row?.[state] ?? 0), 0);

/** Ask for the name of the tube, so that a wrong click cannot remove many jobs. */
function confirmName(tube) {
  return field(`Type ${tube} to confirm`, { name: "name", required: true, whole: true });
}

function checkName(form, tube) {
  if (form.get("name") !== tube) throw new Error("The name is not the name of the tube.");
}

export function truncate(tube, row) {
  return ask({
    title: `Delete all jobs of ${named(tube)}`,
    text: `${plural(total(row), "job")} in all states will be deleted, ${plural(row?.taken ?? 0, "of them taken", "of them taken")}. This cannot be undone. The tube stays.`,
    label: `Delete ${plural(total(row), "job")}`,
    danger: true,
    fields: [confirmName(tube)],
    confirm: async (form) => {
      checkName(form, tube);
      const answer = await send("POST", `${tubePath(tube)}/truncate`);
      toast(`${plural(answer.jobs, "job")} of ${tube} deleted.`);
    },
  });
}

export function drop(tube, row) {
  return ask({
    title: `Drop ${named(tube)}`,
    text: `The tube and its ${plural(total(row), "job")} will be deleted, and its policy with them. This cannot be undone.`,
    label: "Drop the tube",
    danger: true,
    fields: [confirmName(tube)],
    confirm: async (form) => {
      checkName(form, tube);
      await send("DELETE", tubePath(tube));
      location.assign(`${root}/tubes`);
    },
  });
}

const OPTIONS = [
  ["ttr", "Ttr", "Time a consumer has for a job: 5m"],
  ["ttl", "Ttl", "Jobs expire after this time"],
  ["retry", "Retry policy", "5x exp(1s..10m) jitter then bury"],
  ["max_deliveries", "Max deliveries", "After these many deliveries a job fails for good"],
  ["key_limit", "Jobs per key", "How many jobs of a key run at once"],
  ["capacity", "Capacity", "Refuse puts above this number of jobs"],
  ["dead_letter", "Dead-letter tube", "Where jobs go that failed too often"],
];

export function alter(tube, row) {
  const policy = row?.options ?? {};
  return ask({
    title: `Alter ${named(tube)}`,
    text: "Only the fields that you change are applied, to jobs that are put or delivered from now on.",
    label: "Alter",
    wide: true,
    fields: [fields(...OPTIONS.map(([name, label, hint]) => field(label, { name, value: policy[name] ?? "", hint })))],
    confirm: async (form) => {
      const changes = {};
      for (const [name] of OPTIONS) {
        const value = form.get(name);
        if (value === String(policy[name] ?? "")) continue;
        changes[name] = /^(max_deliveries|key_limit|capacity)$/.test(name) && /^\d+$/.test(value) ? Number(value) : value || null;
      }
      if (!Object.keys(changes).length) throw new Error("Nothing was changed.");
      await send("PATCH", tubePath(tube), changes);
      toast(`${tube} is altered.`);
      return changes;
    },
  });
}

export function createTube(user) {
  return ask({
    title: "Create a tube",
    label: "Create",
    fields: [
      field("Name", { name: "name", required: true }),
      fields(
        field("Type", { name: "type", options: ["", "fifo", "fifottl", "utube", "utubettl", "lim_fifottl", "disque"].map((type) => [type, type || "default (fifottl, with retries)"]) }),
        field("Ttr", { name: "ttr", hint: "5m, 30s" }),
        field("Retry policy", { name: "retry", placeholder: "5x exp(1s..10m) jitter then bury" }),
      ),
    ],
    confirm: async (form) => {
      const options = { name: form.get("name") };
      for (const name of ["type", "ttr", "retry"]) if (form.get(name)) options[name] = form.get(name);
      await send("POST", "/tubes", options);
      return form.get("name");
    },
  });
}
