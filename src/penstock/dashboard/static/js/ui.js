// What all pages share: dialogs, messages, keyboard shortcuts, the command palette, the menu, theme and time zone.

import { $, $$, h, icon, root } from "./dom.js";
import { clock, useUtc } from "./format.js";

// ---- Messages -------------------------------------------------------------------------------------------------------

/** Show a message for a few seconds. Errors stay until they are closed. */
export function toast(text, bad = false) {
  const element = h("div", { class: bad ? "toast bad" : "toast" }, h("span", {}, text),
    h("button", { type: "button", "aria-label": "Close", onclick: () => element.remove() }, "✕"));
  $("#toasts").append(element);
  if (!bad) setTimeout(() => element.remove(), 6000);
}

/** Return the sentence of an error: what failed, and what to do. */
export const sentence = (error) => [error.message, error.hint].filter(Boolean).join(" ");

export const showError = (error) => toast(sentence(error), true);

/** Run a function whenever it can be, and show its error. */
export const guarded = (action) => async (...words) => {
  try {
    return await action(...words);
  } catch (error) {
    showError(error);
  }
};

// ---- Dialogs --------------------------------------------------------------------------------------------------------

/**
 * Ask with a dialog. `fields` are elements. `confirm` runs when the user confirms; while it runs, buttons are disabled,
 * and an error is shown in the dialog, which stays open. Return what `confirm` returned, or undefined if cancelled.
 */
export function ask({ title, text, fields = [], label = "OK", danger = false, confirm, wide = false }) {
  return new Promise((resolve) => {
    const error = h("p", { class: "error", role: "alert", hidden: true });
    const cancel = h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel");
    const go = h("button", { class: `button primary${danger ? " danger" : ""}` }, label);
    const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), text && h("p", {}, text), fields, error,
      h("div", { class: "foot" }, cancel, go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", class: wide ? "wide-dialog" : null }, form);
    let result;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      error.hidden = true;
      try {
        result = await confirm(new FormData(form));
        dialog.close();
      } catch (failure) {
        error.textContent = sentence(failure);
        error.hidden = false;
      } finally {
        go.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    // The safe button has focus in a dangerous dialog without fields.
    (fields.length ? form.querySelector("input, select, textarea") : danger ? cancel : go)?.focus();
  });
}

let fieldNumber = 0;

/** Return a labelled input. `options` of a select are [value, label]. */
export function field(label, { name, type = "text", value = "", hint, options, required, placeholder, min, max, whole, rows, checked } = {}) {
  const id = `field-${(fieldNumber += 1)}`;
  const about = hint ? `${id}-hint` : null;
  if (type === "checkbox") {
    return h("div", { class: "field whole" }, h("label", { class: "check" }, h("input", { type, name, id, checked, "aria-describedby": about }), label), hint && h("small", { id: about }, hint));
  }
  const shared = { id, name, required, "aria-describedby": about };
  const input = options
    ? h("select", shared, options.map(([choice, text]) => h("option", { value: choice, selected: choice === value }, text)))
    : type === "area"
      ? h("textarea", { ...shared, rows, placeholder, spellcheck: "false" }, value)
      : h("input", { ...shared, type, value, placeholder, min, max, autocomplete: "off" });
  return h("div", { class: whole || type === "area" ? "field whole" : "field" }, h("label", { for: id }, label), input, hint && h("small", { id: about }, hint));
}

export const fields = (...list) => h("div", { class: "fields" }, list);

/** Return a button. With `refused`, it is visible but does nothing, and the reason is its description. */
export function button(label, { onclick, refused, danger, primary, small, plain, symbol, title } = {}) {
  const names = ["button", danger && "danger", primary && "primary", small && "small", plain && "plain"].filter(Boolean).join(" ");
  const element = h("button", { type: "button", class: names, title: refused || title, "aria-disabled": refused ? "true" : null, "aria-description": refused || null },
    symbol && icon(symbol), label);
  element.addEventListener("click", (event) => {
    if (refused) toast(refused, true);
    else onclick?.(event);
  });
  return element;
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser does not allow copying here. Select the text instead.", true);
  }
}

/** Return the content of a page or card without data: what it would show, and the command that fills it. */
export function empty(title, text, command) {
  return h("div", { class: "empty" }, h("h2", {}, title), text && h("p", {}, text),
    command && h("div", { class: "command" }, h("code", {}, command), h("button", { type: "button", class: "button plain small", "aria-label": "Copy the command", onclick: () => copy(command) }, icon("copy"))));
}

/** Download text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Return buttons that export records as CSV and JSON. */
export function exportButtons(name, records) {
  return [
    button("CSV", { small: true, plain: true, title: "Download these rows as CSV", onclick: () => download(`${name}.csv`, "text/csv", csv(records())) }),
    button("JSON", { small: true, plain: true, title: "Download these rows as JSON", onclick: () => download(`${name}.json`, "application/json", JSON.stringify(records(), plain, 2)) }),
  ];
}

const plain = (_, value) => (typeof value === "bigint" ? String(value) : value);

/** Return records as CSV. A text that a spreadsheet would run as a formula gets an apostrophe. */
export function csv(records) {
  if (!records.length) return "";
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value, plain) : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const names = Object.keys(records[0]);
  return [names, ...records.map((record) => names.map((name) => record[name]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

// ---- Address --------------------------------------------------------------------------------------------------------

/** Return the parameters of the address. */
export const parameters = () => Object.fromEntries(new URLSearchParams(location.search));

/** Write parameters into the address, so that it can be shared. Empty ones are left out. */
export function setParameters(changes) {
  const found = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) found.delete(name);
    else found.set(name, value);
  }
  const text = found.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

// ---- Keys -----------------------------------------------------------------------------------------------------------

const PAGES = Object.fromEntries($$(".side a.item").map((link) => [link.dataset.key, link]));
let pressedG = 0;

function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return undefined;
  if (performance.now() - pressedG < 1500 && PAGES[event.key]) {
    pressedG = 0;
    return PAGES[event.key].click();
  }
  pressedG = 0;
  const action = { g: () => (pressedG = performance.now()), "/": focusSearch, "?": showKeys, t: nextTheme, u: toggleUtc, p: () => $("#live")?.click() }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
  return undefined;
}

function focusSearch() {
  const own = $("main input[type=search]");
  (own ?? $("#find")).focus();
}

function showKeys() {
  const row = (keys, text) => h("li", {}, keys.map((key) => [h("kbd", {}, key), " "]), text);
  ask({
    title: "Keyboard shortcuts",
    label: "Close",
    fields: [h("ul", { class: "keys" }, row(["/"], "search in this page, or find a job or tube"), row(["Ctrl", "K"], "go to a page or tube, or find a job"), row(["?"], "this list"),
      Object.entries(PAGES).map(([key, link]) => row(["g", key], link.dataset.label)), row(["p"], "pause or resume updates"), row(["t"], "light, dark or the system's theme"), row(["u"], "times in UTC or local time"), row(["Esc"], "close a dialog"))],
    confirm: () => undefined,
  });
}

/** The palette: pages, tubes, and a job by its id. */
async function openPalette() {
  if ($("dialog[open]")) return;
  const input = h("input", { type: "text", role: "combobox", "aria-label": "Go to a page, tube or job", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", placeholder: "Page, tube or job id", autocomplete: "off" });
  const list = h("div", { role: "listbox", id: "palette-list", "aria-label": "Results" });
  const dialog = h("dialog", { class: "palette", "aria-label": "Go to" }, h("form", { method: "dialog" }, input, list));
  let found = [];
  let at = 0;
  let asked = 0;
  const show = () => {
    list.replaceChildren(...found.map(({ label, about, href }, number) =>
      h("div", { role: "option", id: `choice-${number}`, "aria-selected": String(number === at), onclick: () => location.assign(href) }, h("span", {}, label), h("small", {}, about))));
    input.setAttribute("aria-activedescendant", found.length ? `choice-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  };
  const search = async () => {
    const number = (asked += 1);
    const { suggestions } = await import("./suggest.js");
    const results = await suggestions(input.value.trim(), Object.values(PAGES));
    if (number !== asked) return;
    [found, at] = [results, 0];
    show();
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      at = (at + step + found.length) % found.length;
      show();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (found[at]) location.assign(found[at].href);
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
  search();
}

// ---- Theme, clock and menu ------------------------------------------------------------------------------------------

function nextTheme() {
  const themes = ["system", "light", "dark"];
  const now = document.documentElement.dataset.theme || "system";
  setTheme(themes[(themes.indexOf(now) + 1) % 3]);
}

/** Use a theme, and store it in a cookie, from which the next page is rendered. */
export function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const place = `path=${root || "/"};SameSite=Strict`;
  document.cookie = theme === "system" ? `penstock-theme=;${place};max-age=0` : `penstock-theme=${theme};${place};max-age=31536000`;
  for (const link of $$("[data-set-theme]")) link.setAttribute("aria-pressed", String(link.dataset.setTheme === theme));
  $("#theme")?.setAttribute("title", `Theme: ${theme}. Click to change it.`);
}

function toggleUtc() {
  useUtc(!clock.utc);
  showClock();
  dispatchEvent(new Event("penstock-clock"));
}

function showClock() {
  const element = $("#clock");
  if (element) element.textContent = clock.utc ? "UTC" : "Local";
}

/** Call a function now and whenever the user switches between UTC and local time. */
export function onClock(action) {
  addEventListener("penstock-clock", action);
}

function setUp() {
  addEventListener("keydown", onKey);
  $("#theme")?.addEventListener("click", nextTheme);
  $("#clock")?.addEventListener("click", toggleUtc);
  $("#palette")?.addEventListener("click", openPalette);
  showClock();
  const side = $("#side");
  const toggle = $("#menu");
  const open = (isOpen) => {
    side.classList.toggle("open", isOpen);
    toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) $("a.item", side).focus();
  };
  toggle?.addEventListener("click", () => open(!side.classList.contains("open")));
  side?.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      open(false);
      toggle.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (side?.classList.contains("open") && !side.contains(event.target) && !toggle.contains(event.target)) open(false);
  });
  $("#find-form")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { suggestions } = await import("./suggest.js");
    const text = $("#find").value.trim();
    const [best] = text ? await suggestions(text, []) : [];
    if (best) location.assign(best.href);
    else if (text) toast(`Nothing found for ${text}.`, true);
  });
}

setUp();
