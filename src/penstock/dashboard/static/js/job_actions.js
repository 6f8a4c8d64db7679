// Changes of one job, or of many. A bulk change shows first how many jobs it would change.

import { send } from "./api.js";
import { h, root } from "./dom.js";
import { countText, plural } from "./format.js";
import { jobPath, shortId, shown } from "./names.js";
import { refusal } from "./rights.js";
import { ask, button, field, toast } from "./ui.js";

const WAITING = ["ready", "delayed", "buried"];

// Each action: its label, the states in which it is possible, and what it does.
const ACTIONS = [
  { action: "dig", label: "Dig", states: ["buried"], text: "The job returns to its tube and is delivered again." },
  { action: "run", label: "Run now", states: ["delayed"], text: "Its delay ends, and it can be taken at once." },
  { action: "snatch", label: "Release", states: ["taken"], text: "The job is taken away from its consumer, which may still work on it, and returns to its tube. The consumer can no longer ack it." },
  { action: "bury", label: "Bury", states: ["ready", "delayed", "taken"], text: "The job is set aside until it is kicked, dug up or deleted." },
  { action: "restart", label: "Run again", states: ["done", "zombie"], text: "The kept job becomes ready, and is delivered again." },
];

function stateRefusal(action, job) {
  return action.states.includes(job.state) ? "" : `A job that is ${job.state} cannot be changed like this. It has to be ${action.states.join(" or ")}.`;
}

/** Return the buttons for a job. `done` is called after a change. */
export function jobButtons(user, job, done) {
  const denied = refusal(user, "write", job.tube);
  const simple = ACTIONS.filter((each) => each.states.includes(job.state)).map((each) =>
    button(each.label, { refused: denied || stateRefusal(each, job), onclick: async () => (await actOnJob(each, job)) && done() }));
  const waits = WAITING.includes(job.state) ? "" : `Only a job that is ${WAITING.join(", ")} can be changed. This one is ${job.state}.`;
  return [
    ...simple,
    button("Priority", { refused: denied || waits, onclick: async () => (await setPriority(job)) && done() }),
    button("Edit body", { refused: denied || waits || (job.as === "hidden" ? "Bodies are hidden." : ""), onclick: async () => (await editBody(job)) && done() }),
    button("Delete", { danger: true, refused: denied, onclick: async () => (await deleteJob(job)) && location.assign(`${root}/jobs`) }),
  ];
}

const title = (label, job) => `${label}: job ${shortId(job.id)} of “${shown(job.tube)}”`;

function actOnJob({ action, label, text }, job) {
  return ask({
    title: title(label, job),
    text,
    label,
    danger: action === "snatch",
    fields: action === "bury" ? [field("Reason", { name: "reason", whole: true, placeholder: "optional" })] : [],
    confirm: async (form) => {
      const body = action === "bury" && form.get("reason") ? { reason: form.get("reason") } : {};
      await send("POST", `${jobPath(job.id)}/${action}`, body);
      toast(`${label}: done.`);
      return true;
    },
  });
}

function setPriority(job) {
  return ask({
    title: title("Change the priority", job),
    label: "Change",
    fields: [field("Priority", { name: "priority", type: "number", value: String(job.priority ?? 0), required: true, hint: "Lower numbers are served first." })],
    confirm: async (form) => {
      await send("PATCH", jobPath(job.id), { priority: Number(form.get("priority")) });
      toast("The priority is changed.");
      return true;
    },
  });
}

function editBody(job) {
  if (job.as === "base64") return ask({ title: title("Edit the body", job), text: "This body is not text, so it cannot be edited here. Use `penstock job edit`.", label: "Close", confirm: () => undefined });
  return ask({
    title: title("Edit the body", job),
    text: "The job keeps its place, its state and its times.",
    label: "Replace the body",
    wide: true,
    fields: [field("Body", { name: "body", type: "area", rows: 12, value: job.text })],
    confirm: async (form) => {
      let body = form.get("body");
      if (job.kind === "json") {
        try {
          JSON.parse(body);
        } catch (error) {
          throw new Error(`The body is not JSON: ${error.message}.`);
        }
      }
      await send("PATCH", jobPath(job.id), { body, as: job.kind === "bytes" ? "text" : job.kind });
      toast("The body is replaced.");
      return true;
    },
  });
}

function deleteJob(job) {
  return ask({
    title: title("Delete", job),
    text: `The job is ${job.state}. Its body is gone then; its events stay in the history.`,
    label: "Delete the job",
    danger: true,
    confirm: async () => {
      await send("DELETE", jobPath(job.id));
      toast("The job is deleted.");
      return true;
    },
  });
}

/**
 * Ask for the plan of a bulk change, show it, and run it if the user confirms. `request` is {action, ids} or {action,
 * filter}. Return the number of changed jobs.
 */
export async function bulk(label, request, where, { danger = false, more = [] } = {}) {
  const plan = await send("POST", "/jobs/actions", { ...request, dry_run: true });
  if (!plan.matched) {
    toast("No job matches, so nothing was changed.", true);
    return 0;
  }
  const count = `${plural(plan.matched, "job")}${plan.cursor ? " and more" : ""}`;
  return ask({
    title: `${label}: ${count} ${where}`,
    fields: [h("div", { class: "plan" }, h("b", {}, countText(plan.matched)), ` ${plan.matched === 1 ? "job" : "jobs"} ${plan.cursor ? "of those looked at so far " : ""}will be changed. Those in another state are refused and stay as they are.`), ...more],
    label: `${label} ${count}`,
    danger,
    confirm: async (form) => {
      const result = await runBulk(request, form.get("reason") ? { reason: form.get("reason") } : {});
      toast(`${label}: ${plural(result.done, "job")} changed${result.failed ? `, ${countText(result.failed)} refused: ${result.failures[0].message}` : "."}`, result.done === 0);
      return result.done;
    },
  });
}

/** Run a bulk change to its end. The API stops after some seconds, and continues with the cursor. */
async function runBulk(request, options) {
  const total = { done: 0, failed: 0, failures: [] };
  let cursor;
  do {
    const part = await send("POST", "/jobs/actions", { ...request, ...options, ...(cursor ? { cursor } : {}) });
    total.done += part.done;
    total.failed += part.failed;
    total.failures.push(...part.failures);
    cursor = part.cursor;
  } while (cursor);
  return total;
}
