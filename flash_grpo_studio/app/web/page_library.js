// Library: prompt sets, rewards, base models and checkpoints, each under an address of its own (?tab=…).

import { loadCatalogueWords, syncControls } from "./form_fields.js";
import { builtInActions } from "./library_built_in.js";
import { checkpointsActions, checkpointsTab } from "./library_checkpoints.js";
import { downloadActions } from "./library_download.js";
import { modelsActions, modelsTab } from "./library_models.js";
import { promptSetActions, promptsTab } from "./library_prompts.js";
import { rewardsTab, tryActions } from "./library_rewards.js";
import { html } from "./template.js";
import { t } from "./texts.js";
import { errorBox, View } from "./view.js";

const TABS = { prompts: promptsTab, rewards: rewardsTab, models: modelsTab, checkpoints: checkpointsTab };
const LOADS = { prompts: "loadSets", rewards: "loadRewards", models: "loadModels", checkpoints: "loadCheckpoints" };

function tabOfAddress() {
  const wanted = new URLSearchParams(location.search).get("tab");
  return wanted in TABS ? wanted : "prompts";
}

class Library extends View {
  state = { tab: tabOfAddress(), loading: true };

  async start() {
    const moved = () => this.show(tabOfAddress());
    addEventListener("popstate", moved);
    const leaving = (event) => this.unsaved() && event.preventDefault();
    addEventListener("beforeunload", leaving);
    this.onStop(() => {
      removeEventListener("popstate", moved);
      removeEventListener("beforeunload", leaving);
    });
    try {
      await loadCatalogueWords();
    } catch {
      // the API's own words remain
    }
    await this.show(this.state.tab);
  }

  /** Show a tab and load what is in it; after an error again, until it is there. */
  async show(tab) {
    this.set({ tab, loading: true, error: null });
    try {
      await this[LOADS[tab]]();
      if (this.state.tab === tab) this.set({ loading: false });
    } catch (error) {
      this.fail(error);
      setTimeout(() => this.isConnected && this.state.tab === tab && this.show(tab), 3000);
    }
  }

  choose(event, link) {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    this.show(tabOfAddress());
  }

  render() {
    const { tab, error, loading } = this.state;
    const links = Object.keys(TABS).map(
      (name) => html`<a href="/library?tab=${name}" data-key="${name}" data-on="click:choose"
        ${name === tab ? html`aria-current="page"` : ""}>${t(`library.tab.${name}`)}</a>`,
    );
    return html`<h1>${t("page.library")}</h1>
      <nav class="fg-tabs" aria-label="${t("library.tabs")}" data-key="tabs">${links}</nav> ${errorBox(error)}
      <section aria-label="${t(`library.tab.${tab}`)}" data-key="tab-${tab}" aria-busy="${loading}">
        ${loading && !this.hasContent(tab) ? html`<p class="fg-muted">${t("library.loading")}</p>` : TABS[tab](this)}</section>`;
  }

  hasContent(tab) {
    return { prompts: this.state.sets, rewards: this.state.rewards, models: this.state.bases, checkpoints: this.state.checkpoints }[tab];
  }

  rendered() {
    syncControls(this);
  }
}

Object.assign(Library.prototype, promptSetActions, builtInActions, tryActions, downloadActions, modelsActions, checkpointsActions);
customElements.define("fg-library", Library);
