// <fg-run-log>: events by type, and the end of the log with a search.

import { api } from "./api.js";
import { bytes } from "./format.js";
import { eventTable, FILTERS, typeName } from "./run_events.js";
import { Panel } from "./run_panel.js";
import { asked, go } from "./page_url.js";
import { ACTIVE } from "./run_words.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox } from "./view.js";

const EVENTS = 100;
const TAILS = [65536, 524288, 1048576];
const MOST_LINES = 2000; // more would make the page slow, and nobody reads them

class Log extends Panel {
  state = { events: null, log: null };

  asks() {
    return ["type", "source", "tail"].map((name) => asked(name)).join(" ");
  }

  async load() {
    if (!this.changed() && !ACTIVE.includes(this.job.state)) return;
    const { id } = this.job;
    const type = FILTERS.includes(asked("type")) ? `&type=${asked("type")}` : "";
    const source = asked("source") ? `&source=${encodeURIComponent(asked("source"))}` : "";
    const tail = TAILS.includes(Number(asked("tail"))) ? Number(asked("tail")) : TAILS[0];
    const [events, log] = await Promise.all([
      api.get(`/jobs/${id}/events?limit=${EVENTS}${type}`),
      api.get(`/jobs/${id}/log?tail=${tail}${source}`),
    ]);
    this.set({ events, log, older: this.older === type ? this.state.older : [] });
    this.older = type;
  }

  render() {
    const { events, log, error } = this.state;
    if (!events) return html`${errorBox(error)}<p class="fg-muted">${t("run.loading")}</p>`;
    return html`<div class="fg-stack">${errorBox(error)} ${this.#events(events)} ${this.#log(log)}</div>`;
  }

  #events({ events, total, next }) {
    const type = asked("type");
    const shown = [...events, ...(this.state.older ?? []).filter((old) => old.id < (events.at(-1)?.id ?? 0))];
    return html`<section data-key="events"><div class="fg-row fg-spread"><h2>${t("run.events")}</h2>
      <label>${t("run.only")} <select id="fg-event-type" data-on="change:type"><option value="">${t("run.all_events")}</option>${FILTERS.map(
        (name) => html`<option value="${name}" ${name === type ? html`selected` : ""}>${typeName(name)}</option>`)}</select></label></div>
      ${shown.length ? eventTable(shown) : html`<p class="fg-muted">${t("run.no_events")}</p>`}
      ${next && shown.length < total ? html`<p><button class="fg-button" data-on="click:more">${t("run.older", { count: total - shown.length })}</button></p>` : ""}
      </section>`;
  }

  #log(log) {
    const wanted = asked("q").toLowerCase();
    const lines = log.text.split("\n");
    const found = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
    const shown = found.slice(-MOST_LINES);
    const sources = log.sources.map((name) => html`<option value="${name}" ${name === log.source ? html`selected` : ""}>${name}</option>`);
    return html`<section data-key="log"><h2>${t("run.log")}</h2>
      <div class="fg-row"><label>${t("run.search_log")} <input type="search" id="fg-log-search" value="${asked("q")}" data-on="input:search"></label>
        <label>${t("run.source")} <select data-on="change:source" id="fg-log-source">${sources}</select></label>
        <span class="fg-small" role="status">${wanted ? t("run.lines_found", { count: found.length }) : ""}</span></div>
      <pre id="fg-log-text" tabindex="0" aria-label="${t("run.log")}">${log.text ? marked(shown, wanted) : t("run.no_log")}</pre>
      <p class="fg-small">${t("run.log_size", { size: bytes(log.bytes) })}
        ${log.truncated ? html`${t("run.log_cut")} <button class="fg-button" data-on="click:longer">${t("run.longer")}</button>` : ""}</p></section>`;
  }

  /** The log stays at its end for who reads the end. */
  rendered() {
    const text = this.querySelector("#fg-log-text");
    if (!text) return;
    if (this.atEnd ?? true) text.scrollTop = text.scrollHeight;
    this.atEnd = text.scrollTop + text.clientHeight > text.scrollHeight - 8;
    text.onscroll = () => (this.atEnd = text.scrollTop + text.clientHeight > text.scrollHeight - 8);
  }

  async more(event, button) {
    const { id } = this.job;
    const older = this.state.older ?? [];
    const cursor = this.cursor && older.length ? this.cursor : this.state.events.next;
    const type = FILTERS.includes(asked("type")) ? `&type=${asked("type")}` : "";
    const page = await this.act(() => api.get(`/jobs/${id}/events?limit=${EVENTS}${type}&cursor=${encodeURIComponent(cursor)}`), button);
    if (!page) return;
    this.cursor = page.next;
    this.set({ older: [...older, ...page.events] });
  }

  type(event) {
    this.cursor = null;
    go({ type: event.target.value }, { step: false });
  }

  source(event) {
    go({ source: event.target.value }, { step: false });
  }

  search(event) {
    go({ q: event.target.value }, { step: false });
  }

  longer() {
    const present = TAILS.indexOf(Number(asked("tail", String(TAILS[0]))));
    go({ tail: String(TAILS[Math.min(TAILS.length - 1, present + 1)]) }, { step: false });
  }
}

/** Lines with what was searched for marked. */
function marked(lines, wanted) {
  if (!wanted) return lines.join("\n");
  return lines.map((line) => {
    const at = line.toLowerCase().indexOf(wanted);
    return html`${line.slice(0, at)}<mark>${line.slice(at, at + wanted.length)}</mark>${line.slice(at + wanted.length)}${"\n"}`;
  });
}

customElements.define("fg-run-log", Log);
