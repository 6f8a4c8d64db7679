// The frame of a page: its title, the signed-in user, and what the user is permitted to do.

import { checkSession, get, me, send, toLogin } from "./api.js";
import { $, h } from "./dom.js";
import { clean } from "./format.js";
import { button, sentence, showError } from "./ui.js";

/** Show the title of the page and its parts. Text of a title can be a name of a client's choice. */
export function page({ title, badges = [], actions = [], lead }, ...parts) {
  document.title = `${title} · Penstock`;
  const notes = $("main noscript");
  $("#main").replaceChildren(...(notes ? [notes] : []),
    h("div", { class: "title" }, h("h1", {}, title), badges, h("div", { class: "actions" }, actions)),
    lead ? h("p", { class: "lead" }, lead) : "", ...parts.flat().filter(Boolean));
}

/** Show the user, and run the page. An error is shown in place of the page. */
export async function start(run) {
  try {
    const user = await me();
    showAccount(user);
    await run(user);
  } catch (error) {
    if (error.status === 401) return;
    page({ title: document.title.split(" · ")[0] }, h("div", { class: "alert bad", role: "alert" }, h("span", {}, sentence(error)),
      h("a", { href: location.href }, "Try again")));
    if (!error.status || error.status >= 500) setTimeout(retry, 2000);
  }
}

/** Load the page again as soon as the API answers. */
async function retry() {
  try {
    await get("/server");
    location.reload();
  } catch {
    setTimeout(retry, 2000);
  }
}

function showAccount(user) {
  const place = $("#account");
  if (!place || user.authenticated_by !== "cookie") return;
  place.replaceChildren(h("span", { class: "muted wide", title: `Rights: ${user.classes.join(", ")}` }, clean(user.user, 40), " "),
    button("Sign out", { small: true, plain: true, onclick: signOut }));
}

async function signOut() {
  try {
    await send("POST", "/logout");
    toLogin();
  } catch (error) {
    showError(error);
    checkSession();
  }
}

