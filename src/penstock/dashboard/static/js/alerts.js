// What needs attention: tubes without consumers, buried jobs, a full memory or disk, a node that is away.

import { h, root, setText } from "./dom.js";
import { tubeHref } from "./names.js";

/** Return {element, update(list)}. An alert is {level, code, message, tube}. Alerts that stay keep their elements. */
export function alertList() {
  const element = h("div", { class: "alerts", role: "status" });
  const places = new Map();
  const update = (list) => {
    const seen = new Set();
    for (const alert of list) {
      const key = `${alert.code} ${alert.tube ?? ""}`;
      seen.add(key);
      let place = places.get(key);
      if (!place) {
        const text = h("span", {});
        const href = alert.tube !== undefined && alert.tube !== null ? tubeHref(alert.tube) : `${root}/settings`;
        place = { text, element: h("div", {}, text, h("a", { href }, "Look")) };
        places.set(key, place);
        element.append(place.element);
      }
      place.element.className = `alert ${alert.level === "critical" ? "bad" : "warn"}`;
      setText(place.text, alert.message);
    }
    for (const [key, place] of places) {
      if (seen.has(key)) continue;
      place.element.remove();
      places.delete(key);
    }
  };
  return { element, update };
}
