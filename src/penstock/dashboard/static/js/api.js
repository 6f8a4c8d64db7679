// Calls of /api/v1, on behalf of the signed-in user. Every page reads and changes the queue through this module only.

import { root } from "./dom.js";

export const apiUrl = (path) => `${root}/api/v1${path}`;

/** A refusal of the API: a stable code, a sentence, and the HTTP status. Status 0: no answer arrived. */
export class ApiError extends Error {
  constructor(status, code, message, hint) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

let session = null;

/** Return the signed-in user with the rights of the session: {user, classes, tubes, csrf_token, …}. */
export function me() {
  session ??= request("GET", "/me").catch((error) => {
    session = null;
    throw error;
  });
  return session;
}

export const get = (path, options) => request("GET", path, options);

/** Send a change. The token proves that the request comes from a page of this application. */
export async function send(method, path, body) {
  const { csrf_token: token } = await me();
  return request(method, path, { body, headers: token ? { "X-CSRF-Token": token } : {} });
}

export const signIn = (user, password) => request("POST", "/login", { body: { user, password }, stay: true });

/** Call the API. If no user is signed in, go to the login page, unless `stay` is true. */
async function request(method, path, { body, headers = {}, stay = false } = {}) {
  const options = { method, headers: { Accept: "application/json", ...headers }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(apiUrl(path), options);
  } catch {
    throw new ApiError(0, "NOANSWER", "The server of this dashboard does not answer.", "Is it still running?");
  }
  const answer = parse(await response.text());
  if (response.ok) return answer;
  if (response.status === 401 && !stay) toLogin();
  const error = answer?.error ?? {};
  throw new ApiError(response.status, error.code ?? "ERR", error.message ?? `The server answered ${response.status}.`, error.hint);
}

const MARK = "\0#";

/** Parse JSON. Integers that a number of JavaScript cannot hold exactly become a BigInt. */
export function parse(text) {
  if (!text) return null;
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (found) =>
    (found[0] === '"' || Number.isSafeInteger(Number(found)) ? found : `"\\u0000#${found}"`));
  try {
    return JSON.parse(marked, (_, value) => (typeof value === "string" && value.startsWith(MARK) && /^-?\d+$/.test(value.slice(2)) ? BigInt(value.slice(2)) : value));
  } catch {
    return null;
  }
}

/** Go to the login page, which returns here. */
export function toLogin() {
  const here = location.pathname.slice(root.length) + location.search;
  location.assign(`${root}/login?next=${encodeURIComponent(here)}`);
}

/** Go to the login page if the session has ended. */
export async function checkSession() {
  try {
    await get("/me");
  } catch {
    // request() has gone to the login page, or there is no answer at all.
  }
}

/** Return a query string of the parameters that have a value. */
export function query(parameters) {
  const found = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return found.length ? `?${new URLSearchParams(found)}` : "";
}
