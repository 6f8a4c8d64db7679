// Finds pages, tubes and jobs by what the user types.

import { get, query } from "./api.js";
import { root } from "./dom.js";
import { jobHref, shown, tubeHref } from "./names.js";

const ID = /^(D-[0-9a-f]{8}-.{24}-[0-9a-f]{4}|[0-9a-f]{32}|.+#\d+)$/i;

/** Return the best matches as {label, about, href}. `links` are the links of the navigation. */
export async function suggestions(text, links) {
  const wanted = text.toLowerCase();
  const found = links.filter((link) => link.dataset.label.toLowerCase().includes(wanted)).map((link) => ({ label: link.dataset.label, about: "page", href: link.href }));
  if (!text) return found;
  if (ID.test(text)) found.unshift({ label: text, about: "job", href: jobHref(text) });
  try {
    const { tubes } = await get(`/tubes${query({ match: `*${text.replace(/[*?[\]\\]/g, "\\$&")}*`, limit: 8 })}`);
    found.push(...tubes.map(({ name }) => ({ label: shown(name), about: "tube", href: tubeHref(name) })));
  } catch {
    // Pages can be found without an answer.
  }
  if (!found.length) found.push({ label: `Search jobs for “${text}”`, about: "search", href: `${root}/jobs${query({ where: text })}` });
  return found;
}
