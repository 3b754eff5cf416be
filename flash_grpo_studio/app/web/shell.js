// What every page has: navigation by real links, language and theme, the banner while the server is away, and the login.

import { api, connection } from "./api.js";
import { html } from "./template.js";
import { LANGUAGES, chooseLanguage, currentLanguage, t } from "./texts.js";
import { errorBox, View } from "./view.js";

export const PAGES = [
  ["home", "/"],
  ["new", "/new"],
  ["runs", "/runs"],
  ["library", "/library"],
  ["machines", "/machines"],
  ["settings", "/settings"],
  ["help", "/help"],
];
const THEMES = ["system", "light", "dark"];
const THEME_STORE = "flash-grpo-theme";

/** The theme chosen, put into effect; Gradio's own parts follow the class `dark` of the body. */
export function applyTheme() {
  const chosen = localStorage.getItem(THEME_STORE) || "system";
  const dark = chosen === "dark" || (chosen === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.body?.classList.toggle("dark", dark);
  return chosen;
}

export function chooseTheme(name) {
  localStorage.setItem(THEME_STORE, name);
  applyTheme();
}

class Shell extends View {
  state = { page: this.getAttribute("page"), away: connection.lost, menu: false, me: null };

  async start() {
    applyTheme();
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", applyTheme);
    const changed = () => this.set({ away: connection.lost });
    const asked = () => this.set({ login: true });
    connection.addEventListener("change", changed);
    window.addEventListener("fg-login-needed", asked);
    this.onStop(() => {
      media.removeEventListener("change", applyTheme);
      connection.removeEventListener("change", changed);
      window.removeEventListener("fg-login-needed", asked);
    });
    // A page that asks for nothing else must still notice that the server is back.
    this.every(10, async () => {
      const health = await api.get("/health");
      if (health.login_needed && !this.state.me) this.set({ me: await api.get("/me") });
      this.set({ health });
    });
  }

  render() {
    const { page, away, menu, me, login, health } = this.state;
    const links = PAGES.map(
      ([name, address]) => html`<a href="${address}" data-key="${name}"
        ${name === page ? html`aria-current="page"` : ""}>${t(`page.${name}`)}</a>`,
    );
    return html`
      <a class="fg-skip" href="#fg-main">${t("shell.skip")}</a>
      <header class="fg-header">
        <a class="fg-brand" href="/">Flash-GRPO <span>Studio</span></a>
        <button class="fg-menu" aria-expanded="${menu}" aria-controls="fg-nav" data-on="click:toggleMenu">
          ${t("shell.menu")}
        </button>
        <nav id="fg-nav" aria-label="${t("shell.pages")}" class="${menu ? "fg-open" : ""}">${links}</nav>
        <div class="fg-tools">
          <label><span class="fg-hidden">${t("shell.language")}</span>
            <select id="fg-language" data-on="change:language">${Object.entries(LANGUAGES).map(
              ([name, title]) =>
                html`<option value="${name}" lang="${name}" ${name === currentLanguage() ? html`selected` : ""}>${title}</option>`,
            )}</select></label>
          <label><span class="fg-hidden">${t("shell.theme")}</span>
            <select id="fg-theme" data-on="change:theme">${THEMES.map(
              (name) =>
                html`<option value="${name}" ${name === (localStorage.getItem(THEME_STORE) || "system") ? html`selected` : ""}>${t(`theme.${name}`)}</option>`,
            )}</select></label>
          ${me ? html`<button class="fg-button fg-quiet" data-on="click:logout">${t("shell.logout", { name: me.name })}</button>` : ""}
        </div>
      </header>
      <div class="fg-banners" aria-live="polite">
        ${away ? html`<p class="fg-banner" id="fg-away">${t("shell.away")}</p>` : ""}
        ${!away && health && !health.workers.ok ? html`<p class="fg-banner" id="fg-no-worker">${t("shell.no_worker")}</p>` : ""}
        ${!away && health && !health.database.ok ? html`<p class="fg-banner" id="fg-no-database">${t("shell.no_database")}</p>` : ""}
      </div>
      ${login ? this.#loginForm() : ""}`;
  }

  #loginForm() {
    return html`<div class="fg-veil"><form class="fg-card fg-login" data-on="submit:login" aria-labelledby="fg-login-title">
      <h2 id="fg-login-title">${t("login.title")}</h2>
      <label class="fg-field"><span>${t("login.name")}</span><input name="name" autocomplete="username" required autofocus></label>
      <label class="fg-field"><span>${t("login.password")}</span>
        <input name="password" type="password" autocomplete="current-password" required></label>
      ${errorBox(this.state.error)}
      <button class="fg-button fg-primary">${t("login.submit")}</button>
    </form></div>`;
  }

  toggleMenu() {
    this.set({ menu: !this.state.menu });
  }

  language(event) {
    chooseLanguage(event.target.value);
  }

  theme(event) {
    chooseTheme(event.target.value);
  }

  async login(event) {
    const form = event.target;
    const body = { name: form.elements.name.value, password: form.elements.password.value };
    if (await this.act(() => api.post("/login", body), form.querySelector("button"))) location.reload();
  }

  async logout(event, button) {
    await this.act(() => api.post("/logout"), button);
    location.assign("/");
  }
}

customElements.define("fg-shell", Shell);
