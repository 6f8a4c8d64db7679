// Numbers and times as text. The rules are those of penstock/report/units.py, and a test compares both.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const THOUSANDS = ["", "k", "M", "G", "T"];
const BYTES = ["bytes", "KB", "MB", "GB", "TB"];
const SEPARATED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Return a duration as `250 ms`, `3.2 s`, `41 s`, `12 min 5 s` or `2 d 4 h`: at most two units, no zeros. */
export function durationText(ms) {
  ms = Math.max(0, Math.round(ms));
  if (ms < 1000) return `${ms} ms`;
  if (ms < 10000) return `${Math.floor(ms / 100) / 10} s`;
  let seconds = Math.floor(ms / 1000);
  const at = UNITS.findIndex(([, unit]) => seconds >= unit);
  const parts = [];
  for (const [name, unit] of UNITS.slice(at, at + 2)) {
    const count = Math.floor(seconds / unit);
    if (count) parts.push(`${count} ${name}`);
    seconds %= unit;
  }
  return parts.join(" ");
}

/** Return a number with separators: `0.25`, `7.5`, `1,234`. */
export function countText(count) {
  if (Number.isInteger(count)) return SEPARATED.format(count);
  return Math.abs(count) >= 100 ? SEPARATED.format(count) : String(Number(count.toPrecision(3)));
}

/** Return a number for a place with little room: `950`, `1.2k`, `35k`, `4M`. */
export function shortCountText(count) {
  const [value, power] = scaled(count);
  if (!power) return countText(Math.abs(count) >= 10 ? Math.round(count) : Math.round(count * 100) / 100);
  return twoDigits(value).replace(/\.0$/, "") + THOUSANDS[power];
}

/** Return a number of bytes as `812 bytes`, `4.2 KB` or `130 MB`. A KB has 1,000 bytes. */
export function bytesText(count) {
  const [value, power] = scaled(count);
  return `${power ? twoDigits(value) : count} ${BYTES[power]}`;
}

/** Return a rate per second: `0`, `0.4`, `12.5`, `1,250`. */
export function rateText(rate) {
  if (!rate) return "0";
  return rate >= 100 ? countText(Math.round(rate)) : String(Math.round(rate * 10) / 10 || "< 0.1");
}

function scaled(count) {
  let power = 0;
  while (Math.abs(count) >= (power ? 999.5 : 1000) && power < THOUSANDS.length - 1) {
    count /= 1000;
    power += 1;
  }
  return [count, power];
}

const twoDigits = (value) => (Math.abs(value) < 9.95 ? value.toFixed(1) : value.toFixed(0));

/** Whether times are shown in UTC. The choice is kept in this browser. */
export const clock = { utc: read("utc") === "1" };

function read(name) {
  try {
    return localStorage.getItem(`penstock-${name}`);
  } catch {
    return null;
  }
}

export function useUtc(utc) {
  clock.utc = utc;
  try {
    localStorage.setItem("penstock-utc", utc ? "1" : "0");
  } catch {
    // Without storage the choice lasts until the page is left.
  }
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

function parts(ms) {
  const at = new Date(clock.utc ? ms : ms - new Date(ms).getTimezoneOffset() * 60000);
  return [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds(), at.getUTCMilliseconds()];
}

/** Return a date and time to the second, or with `milliseconds`. */
export function momentText(ms, milliseconds = false) {
  const [year, month, day, hour, minute, second, rest] = parts(ms);
  const time = `${year}-${pad(month)}-${pad(day)} ${pad(hour)}:${pad(minute)}:${pad(second)}`;
  return milliseconds ? `${time}.${pad(rest, 3)}` : time;
}

/** Return the time of day: `14:05`, or `14:05:09` with `seconds`. */
export function timeText(ms, seconds = false) {
  const [, , , hour, minute, second] = parts(ms);
  return `${pad(hour)}:${pad(minute)}${seconds ? `:${pad(second)}` : ""}`;
}

/** Return how long ago a moment was: `3.2 s ago`. */
export const agoText = (ms, now = Date.now()) => (ms > now ? `in ${durationText(ms - now)}` : `${durationText(now - ms)} ago`);

/** Return "1 job" or "1,234 jobs". */
export const plural = (count, one, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;

/** Return a text on one line, without control and direction characters, and shortened. */
export function clean(text, charactersMax = 80) {
  const found = String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
  return found.length > charactersMax ? `${found.slice(0, charactersMax - 1)}…` : found;
}
