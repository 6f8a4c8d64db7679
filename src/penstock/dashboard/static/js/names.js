// Names of tubes and ids of jobs, in addresses and on the screen.
//
// A name can be any bytes. In JSON, a byte that is not UTF-8 is a surrogate, U+DC80 to U+DCFF; in an address it is %80
// to %FF. A page has the address of its resource in the API: /tubes/mail shows /api/v1/tubes/mail.

import { root } from "./dom.js";

/** Return a name as a part of an address. */
export function encodeName(name) {
  // Iterating yields a pair of surrogates as one character, so a single surrogate stands for a byte.
  const encoded = [...name].map((each) => (/^[\udc80-\udcff]$/.test(each) ? `%${(each.charCodeAt(0) - 0xdc00).toString(16).toUpperCase()}` : encodeURIComponent(each))).join("");
  // A browser would remove "." and "..".
  return /^\.{1,2}$/.test(encoded) ? encoded.replaceAll(".", "%2E") : encoded;
}

/** Return the name in a part of an address. */
export function decodeName(part) {
  const bytes = [];
  for (let at = 0; at < part.length; at += 1) {
    if (part[at] === "%") {
      bytes.push(Number.parseInt(part.slice(at + 1, at + 3), 16));
      at += 2;
    } else {
      bytes.push(part.charCodeAt(at));
    }
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return bytes.map((byte) => String.fromCharCode(byte < 128 ? byte : 0xdc00 + byte)).join("");
  }
}

export const tubePath = (name) => `/tubes/${encodeName(name)}`;
export const tubeHref = (name) => root + tubePath(name);

/** Return the path of a job. "/" and "+" of an id are written as "_" and "-". */
export function jobPath(id) {
  const isLong = /^D-[0-9a-f]{8}-.{24}-[0-9a-f]{4}$/.test(id);
  return `/jobs/${isLong ? id.slice(0, 11) + id.slice(11, 35).replace(/\+/g, "-").replace(/\//g, "_") + id.slice(35) : encodeName(id)}`;
}
export const jobHref = (id) => root + jobPath(id);

/** The last part of the address of this page. */
export const lastPart = () => location.pathname.slice(location.pathname.lastIndexOf("/") + 1);

/** Return a name for the screen: control and direction characters, and bytes that are not UTF-8, become visible. */
export function shown(name, charactersMax = 120) {
  const found = String(name).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (each) => {
    const code = each.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
  return found.length > charactersMax ? `${found.slice(0, charactersMax - 1)}…` : found || "(empty)";
}

/** Return a name for the screen, or "" if there is none. */
export const shownOr = (name, charactersMax) => (name === undefined || name === null || name === "" ? "" : shown(name, charactersMax));

/** Return the beginning of a job's id, which is enough to tell jobs apart on a screen. */
export const shortId = (id) => (id.length === 40 ? `${id.slice(11, 19)}…` : id);
