// Scales: where a value is on an axis, and which values are labelled. The rules are those of the report
// (penstock/report/charts/scales.py and time_axis.py), and a test compares both.

import { durationText, shortCountText, timeText } from "./format.js";

/** Durations that are labelled, in ms. */
export const DURATIONS_MS = [
  1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 60000, 180000, 600000, 1800000, 3600000, 10800000, 43200000,
  86400000, 259200000, 864000000, 2592000000, 8640000000, 31536000000, 94608000000,
];
const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const LABELS_MAX = 4;

/** Return the scale of counts: from zero to a round number at or above the greatest value. */
export function linearScale(values, text = shortCountText) {
  const greatest = values.reduce((most, value) => (value > most ? value : most), 0);
  const step = roundStep(greatest / 3);
  const top = Math.max(step * Math.ceil(greatest / step - 1e-9), step);
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => [(at * step) / top, text(at * step)]);
  return { top, ticks, place: (value) => Math.min(1, Math.max(0, value / top)) };
}

function roundStep(least) {
  if (least <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * (1 - 1e-9));
}

/** Return the scale of durations in ms: logarithmic, between two of DURATIONS_MS. */
export function durationScale(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const least = Math.max(1, known.length ? Math.min(...known) : 1);
  const most = known.length ? Math.max(...known) : 1;
  const last = DURATIONS_MS.length - 1;
  let low = DURATIONS_MS.findLastIndex((edge) => edge <= least);
  let high = DURATIONS_MS.findIndex((edge) => edge >= most);
  if (high < 0) high = last;
  if (high - low < 2) high = Math.min(low + 2, last);
  low = Math.min(low, high - 2);
  const edges = DURATIONS_MS.slice(low, high + 1);
  const [start, end] = [Math.log(edges[0]), Math.log(edges.at(-1))];
  const place = (value) => Math.min(1, Math.max(0, (Math.log(Math.max(value, 1)) - start) / (end - start)));
  const every = Math.ceil((edges.length - 1) / LABELS_MAX);
  const ticks = edges.filter((_, at) => at % every === 0).map((edge) => [place(edge), durationText(edge)]);
  return { top: edges.at(-1), ticks, place };
}

/** Return the labels of a time axis as [share of the width, text]. */
export function timeTicks(startMs, endMs) {
  const length = (endMs - startMs) / 1000;
  const every = TICKS_S.find((tick) => length / tick <= 5) ?? TICKS_S.at(-1);
  const ticks = [];
  for (let tick = Math.ceil(startMs / 1000 / every) * every; tick * 1000 <= endMs; tick += every) {
    ticks.push([(tick * 1000 - startMs) / (endMs - startMs), timeText(tick * 1000, every < 60)]);
  }
  return ticks;
}
