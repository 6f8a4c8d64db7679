// The event stream of a page. There is at most one. It is closed while the page is hidden, because a browser opens only
// six connections to a host. After an error it is opened again, with growing pauses.

import { apiUrl, checkSession } from "./api.js";
import { $, setText } from "./dom.js";
import { durationText, timeText } from "./format.js";

const PAUSES_MS = [500, 1000, 2000, 5000];
// Without a message for this long, data is stale, even if the connection is open.
const SILENCE_MS = 5000;

/** Start a stream. `listeners` maps the name of an event to a function of its data. Return it. */
export class Stream {
  constructor(path, listeners) {
    Object.assign(this, { path, listeners, source: null, failures: 0, paused: false, timer: 0, lastMs: Date.now(), wasLive: false, nodeDown: null });
    this.badge = $("#live");
    this.badge?.addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("visibilitychange", () => this.#update());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", () => this.#update());
    setInterval(() => this.#check(), 1000);
    this.#update();
  }

  /** Use another address, for example with other filters. */
  move(path) {
    this.path = path;
    this.#close();
    this.#update();
  }

  pause(paused) {
    this.paused = paused;
    this.#update();
  }

  /**
   * Call a function now and every `ms` while the page is shown and updates are not paused. The first call's error is
   * thrown. Later ones only make the data stale.
   */
  async every(ms, action) {
    const again = async () => {
      if (this.paused || document.hidden) return;
      try {
        await action();
      } catch {
        // The stream shows that the node or the API does not answer.
      }
    };
    setInterval(again, ms);
    await action();
  }

  #update() {
    if (document.hidden || this.paused) this.#close();
    else if (!this.source && !this.timer) this.#open();
    this.#show();
  }

  #open() {
    const source = (this.source = new EventSource(apiUrl(this.path)));
    for (const [name, listener] of Object.entries(this.listeners)) {
      source.addEventListener(name, (event) => {
        this.#received();
        listener(JSON.parse(event.data), event);
      });
    }
    source.addEventListener("open", () => (this.failures = 0));
    // An event with data comes from the API: its node does not answer. One without data is a lost connection.
    source.addEventListener("error", (event) => (event.data ? this.#down(JSON.parse(event.data).error) : this.#failed()));
  }

  #received() {
    this.lastMs = Date.now();
    this.nodeDown = null;
    this.wasLive = true;
    this.#show();
  }

  /** The API answers, but its node does not. */
  #down(data) {
    this.nodeDown = data;
    this.#show();
  }

  #failed() {
    this.#close();
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.#update();
    }, pause * (0.75 + Math.random() / 2));
    // A stream that is refused has the same event as one that is broken. A session may have ended.
    if (this.failures > 1) checkSession();
    this.#show();
  }

  #close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    this.timer = 0;
  }

  #check() {
    this.#show();
  }

  #show() {
    if (!this.badge) return;
    const silence = Date.now() - this.lastMs;
    let state = "live";
    let text = "Live";
    if (this.paused) [state, text] = ["paused", "Paused"];
    else if (this.nodeDown || silence > SILENCE_MS) {
      state = "stale";
      text = `Stale for ${durationText(Math.floor(silence / 1000) * 1000 || 1000)}`;
    } else if (!this.wasLive) [state, text] = ["waiting", "Connecting"];
    if (this.badge.dataset.state !== state) this.badge.dataset.state = state;
    this.badge.title = state === "stale"
      ? `${this.nodeDown?.message ?? "The connection is lost."} Data is from ${timeText(this.lastMs, true)}. It updates again as soon as the node answers.`
      : state === "paused" ? "Updates are paused. Click to resume them." : "Updates arrive each second. Click to pause them.";
    setText(this.badge, text);
  }
}
