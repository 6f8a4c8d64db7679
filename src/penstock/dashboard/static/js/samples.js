// The points of live charts, kept in this tab, so that charts are not empty after a change of page.

const KEPT = 300;

/** A list of [ms, …values] under a name. */
export class Samples {
  constructor(name, spanMs = 300000) {
    this.name = `penstock-samples-${name}`;
    this.points = read(this.name).filter(([ms]) => ms > Date.now() - spanMs);
    addEventListener("pagehide", () => this.store());
  }

  add(point) {
    this.points.push(point);
    if (this.points.length > KEPT) this.points.shift();
  }

  store() {
    try {
      sessionStorage.setItem(this.name, JSON.stringify(this.points));
    } catch {
      // Without storage, charts begin with the page.
    }
  }
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) ?? [];
  } catch {
    return [];
  }
}
