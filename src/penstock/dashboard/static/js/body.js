// The body of a job as JSON, text or hex.

import { parse } from "./api.js";
import { h } from "./dom.js";
import { bytesText } from "./format.js";
import { button, copy, download } from "./ui.js";

// Longer bodies are shown in part, and can be downloaded.
const SHOWN_MAX = 200000;

/** Return an element that shows bytes. `kind` is "json", "text" or "bytes": what the producer declared. */
export function bodyViewer(bytes, kind, name) {
  const text = decoded(bytes);
  const json = text === null ? null : pretty(text);
  const views = [json !== null && ["JSON", () => json], text !== null && ["Text", () => text], ["Hex", () => hex(bytes)]].filter(Boolean);
  const place = h("pre", { class: "body", tabindex: "0", "aria-label": "Body of the job" });
  const tabs = views.map(([label, content]) => {
    const tab = h("button", { type: "button", "aria-pressed": "false", onclick: () => show(tab, content, label) }, label);
    return tab;
  });
  function show(tab, content, label) {
    for (const each of tabs) each.setAttribute("aria-pressed", String(each === tab));
    const shown = content();
    place.textContent = shown.length > SHOWN_MAX ? `${shown.slice(0, SHOWN_MAX)}\n… download the body to see the rest` : shown;
    place.classList.toggle("hex", label === "Hex");
  }
  tabs[0].click();
  return h("div", {},
    h("div", { class: "actions body-tools" }, h("div", { class: "tabs", role: "group", "aria-label": "Form of the body" }, tabs),
      h("span", { class: "muted" }, `${bytesText(bytes.length)}, put as ${kind}`),
      text !== null && button("Copy", { small: true, plain: true, symbol: "copy", onclick: () => copy(text) }),
      button("Download", { small: true, plain: true, onclick: () => download(`${name}.bin`, "application/octet-stream", bytes) })),
    place);
}

/** Return the bytes of a body in an answer of the API. */
export function bytesOf(text, kind) {
  if (kind === "base64") return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  return new TextEncoder().encode(text);
}

function decoded(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return /[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** Return a value as JSON, with all digits of large integers. With `indent`, it has lines. */
export function jsonText(value, indent = "", before = "") {
  const inner = before + indent;
  const join = (parts, open, close) => {
    if (!parts.length) return open + close;
    return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${before}${close}` : open + parts.join(",") + close;
  };
  if (Array.isArray(value)) return join(value.map((each) => jsonText(each, indent, inner)), "[", "]");
  if (value !== null && typeof value === "object") {
    return join(Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}:${indent ? " " : ""}${jsonText(each, indent, inner)}`), "{", "}");
  }
  return typeof value === "bigint" ? String(value) : JSON.stringify(value);
}

/** Indent JSON. Return null if the text is not JSON, or only a word or a number. */
export function pretty(text) {
  if (!/^\s*[{[]/.test(text)) return null;
  const value = parse(text);
  return value === null ? null : jsonText(value, "  ");
}

function hex(bytes) {
  const rows = [];
  for (let at = 0; at < Math.min(bytes.length, 16384); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const shown = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${shown}`);
  }
  if (bytes.length > 16384) rows.push("… download the body to see the rest");
  return rows.join("\n");
}
