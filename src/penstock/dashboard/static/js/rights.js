// What the signed-in user may do. The node decides; this module only explains a refusal before it happens.

const NEEDED = { write: "write", admin: "administrator" };

/** Return why the user may not use commands of a class on a tube, or "". */
export function refusal(user, needed, tube) {
  if (!user.classes.includes(needed)) {
    return `Your user has no ${NEEDED[needed]} rights on this node. It may ${user.classes.join(", ") || "do nothing"}.`;
  }
  if (tube !== undefined && user.tubes?.length && !user.tubes.some((pattern) => matches(pattern, tube))) {
    return `Your user may use only tubes that match ${user.tubes.join(", ")}.`;
  }
  return "";
}

/** Return whether a name matches a pattern with `*`, `?` and `[…]`. */
export function matches(pattern, name) {
  const parts = pattern.match(/\\.|\*+|\?|\[!?\]?[^\]]*\]|[^\\*?[]|./gsu) ?? [];
  const escaped = parts.map((part) => {
    if (part.startsWith("*")) return ".*";
    if (part === "?") return ".";
    if (part.length > 2 && part.startsWith("[")) return `[${part.slice(1, -1).replace(/^!/, "^").replace(/\\/g, "\\\\")}]`;
    return part.replace(/^\\(.)$/s, "$1").replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
  });
  return new RegExp(`^${escaped.join("")}$`, "su").test(name);
}
