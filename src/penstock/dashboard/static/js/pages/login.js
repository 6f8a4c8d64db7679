// The login page. It accepts only addresses of this application as the next page.

import { get, signIn } from "../api.js";
import { $, root } from "../dom.js";
import { sentence } from "../ui.js";

function nextPage() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const url = new URL(root + next, location.origin);
  const isOurs = next.startsWith("/") && url.origin === location.origin && url.pathname.startsWith(`${root}/`);
  return isOurs && !url.pathname.endsWith("/login") ? url.href : `${root}/`;
}

$("#login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const error = $("#error");
  const go = $("#login .button");
  go.disabled = true;
  error.hidden = true;
  try {
    await signIn(form.get("user"), form.get("password"));
    location.replace(nextPage());
  } catch (failure) {
    error.textContent = sentence(failure);
    error.hidden = false;
    $("#password").select();
  } finally {
    go.disabled = false;
  }
});

// Nothing to do here if the node has no users, or the user is signed in already.
get("/me", { stay: true }).then(() => location.replace(nextPage()), () => $("#user").focus());
