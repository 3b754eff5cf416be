// What every page has: navigation by real links, language and theme, the banner while the server is away, and the login.

import { api, connection, poll } from "./api.js";
import { saidPlainly } from "./server_words.js";
import { html } from "./template.js";
import { LANGUAGES, chooseLanguage, currentLanguage, keepLanguage, t } from "./texts.js";
import { View } from "./view.js";

export const PAGES = [
  ["home", "/"],
  ["new", "/new"],
  ["runs", "/runs"],
  ["compare", "/compare"],
  ["vote", "/vote"],
  ["library", "/library"],
  ["machines", "/machines"],
  ["settings", "/settings"],
  ["help", "/help"],
];
export const THEMES = ["system", "light", "dark"];
const THEME_STORE = "flash-grpo-theme";
const HEALTH_SECONDS = 10;
const RETURN_SECONDS = 2;

export function themeChosen() {
  const kept = localStorage.getItem(THEME_STORE);
  return THEMES.includes(kept) ? kept : "system";
}

/** The theme chosen, put into effect; Gradio's own parts follow the class `dark` of the body. */
export function applyTheme() {
  const chosen = themeChosen();
  const dark = chosen === "dark" || (chosen === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.body?.classList.toggle("dark", dark);
  return chosen;
}

export function chooseTheme(name) {
  localStorage.setItem(THEME_STORE, name);
  applyTheme();
  for (const select of document.querySelectorAll("#fg-theme, #fg-own-theme")) select.value = name;
}

/** Keep a choice with the user, so that another browser has it after the next login; this one has it anyway. */
export async function remember(changes) {
  try {
    const me = await api.get("/me");
    await api.patch("/me", { settings: { ...me.settings, ...changes } });
  } catch {
    // A user who may not write, or a server that is away: the choice holds in this browser alone.
  }
}

/** What a user chose elsewhere, put into effect here. */
function adopt(settings) {
  if (THEMES.includes(settings.theme)) localStorage.setItem(THEME_STORE, settings.theme);
  if (settings.language in LANGUAGES) keepLanguage(settings.language);
}

/** Gradio names `/` as the base of its pages, so that a link to `#part` would lead away from the page it stands on. */
function followFragment(event) {
  const target = event.target.closest?.('a[href^="#"]')?.getAttribute("href");
  if (!target || event.defaultPrevented) return;
  event.preventDefault();
  location.hash = target;
}

class Shell extends View {
  state = { page: this.getAttribute("page"), away: connection.lost, menu: false, me: null, login: connection.locked };

  async start() {
    applyTheme();
    const media = matchMedia("(prefers-color-scheme: dark)");
    const stored = (event) => event.key === THEME_STORE && chooseTheme(themeChosen());
    const changed = () => this.#connectionChanged();
    const asked = () => this.set({ login: true, menu: false });
    const escaped = (event) => event.key === "Escape" && this.state.menu && this.set({ menu: false });
    media.addEventListener("change", applyTheme);
    connection.addEventListener("change", changed);
    window.addEventListener("storage", stored);
    window.addEventListener("fg-login-needed", asked);
    document.addEventListener("keydown", escaped);
    document.addEventListener("click", followFragment);
    this.onStop(() => {
      media.removeEventListener("change", applyTheme);
      connection.removeEventListener("change", changed);
      window.removeEventListener("storage", stored);
      window.removeEventListener("fg-login-needed", asked);
      document.removeEventListener("keydown", escaped);
      document.removeEventListener("click", followFragment);
    });
    this.every(HEALTH_SECONDS, () => this.#look());
  }

  async #look() {
    const health = await api.get("/health");
    if (health.login_needed && !this.state.me) this.set({ me: await api.get("/me") });
    this.set({ health });
  }

  /** A page that asks for nothing itself must still notice that the server is back. */
  #connectionChanged() {
    this.set({ away: connection.lost });
    if (!connection.lost || this.waiting) return;
    this.waiting = poll(async () => {
      await this.#look();
      this.waiting?.();
      this.waiting = null;
    }, RETURN_SECONDS);
    this.onStop(() => this.waiting?.());
  }

  render() {
    const { page, menu, me, login } = this.state;
    const links = PAGES.map(
      ([name, address]) => html`<a href="${address}" data-key="${name}"
        ${name === page ? html`aria-current="page"` : ""}>${t(`page.${name}`)}</a>`,
    );
    return html`
      <a class="fg-skip" href="#fg-main" data-on="click:skip">${t("shell.skip")}</a>
      <header class="fg-header">
        <a class="fg-brand" href="/">Flash-GRPO <span>Studio</span></a>
        <button class="fg-menu" aria-expanded="${String(menu)}" aria-controls="fg-nav" data-on="click:toggleMenu">
          ${t("shell.menu")}
        </button>
        <nav id="fg-nav" aria-label="${t("shell.pages")}" class="${menu ? "fg-open" : ""}">${links}</nav>
        <div class="fg-tools">${this.#choices()}
          ${me ? html`<button class="fg-button fg-quiet" data-on="click:logout">${t("shell.logout", { name: me.name })}</button>` : ""}
        </div>
      </header>
      <div class="fg-banners" aria-live="polite">${login ? "" : this.#banners()}</div>
      ${login ? this.#loginForm() : ""}`;
  }

  #choices() {
    const language = ([name, title]) =>
      html`<option value="${name}" lang="${name}" ${name === currentLanguage() ? html`selected` : ""}>${title}</option>`;
    const theme = (name) =>
      html`<option value="${name}" ${name === themeChosen() ? html`selected` : ""}>${t(`theme.${name}`)}</option>`;
    return html`<label><span class="fg-hidden">${t("shell.language")}</span>
        <select id="fg-language" data-on="change:language">${Object.entries(LANGUAGES).map(language)}</select></label>
      <label><span class="fg-hidden">${t("shell.theme")}</span>
        <select id="fg-theme" data-on="change:theme">${THEMES.map(theme)}</select></label>`;
  }

  #banners() {
    const { away, health } = this.state;
    if (away) return html`<p class="fg-banner" id="fg-away" data-key="away">${t("shell.away")}</p>`;
    if (!health) return "";
    if (!health.database.ok) return html`<p class="fg-banner" id="fg-no-database" data-key="database">${t("shell.no_database")}</p>`;
    return html`${health.workers.ok ? "" : html`<p class="fg-banner" id="fg-no-worker" data-key="worker">${t("shell.no_worker")}</p>`}
      ${health.disk.ok ? "" : html`<p class="fg-banner" id="fg-no-disk" data-key="disk">${t("shell.no_disk")}</p>`}`;
  }

  #loginForm() {
    const { wrong } = this.state;
    return html`<div class="fg-veil" data-key="login"><form class="fg-card fg-login" role="dialog" aria-modal="true" data-on="submit:login" aria-labelledby="fg-login-title">
      <h1 id="fg-login-title">${t("login.title")}</h1>
      <label class="fg-field"><span>${t("login.name")}</span><input name="name" autocomplete="username" required></label>
      <label class="fg-field"><span>${t("login.password")}</span>
        <input name="password" type="password" autocomplete="current-password" required></label>
      ${wrong ? html`<p class="fg-error" role="alert">${wrong}</p>` : ""}
      <button class="fg-button fg-primary">${t("login.submit")}</button>
      <p class="fg-small">${t("login.help")}</p>
    </form></div>`;
  }

  rendered() {
    const { login } = this.state;
    const main = document.getElementById("fg-main");
    for (const part of [main, this.querySelector(".fg-header")]) part?.toggleAttribute("inert", Boolean(login));
    if (login && !this.loginShown) this.querySelector(".fg-login input")?.focus();
    this.loginShown = login;
  }

  /** The address may hold something else behind its `#`, such as the entry of Help that is shown. */
  skip(event) {
    event.preventDefault();
    document.getElementById("fg-main").focus();
  }

  toggleMenu() {
    this.set({ menu: !this.state.menu });
  }

  async language(event) {
    const name = event.target.value;
    if (this.state.me) await remember({ language: name });
    chooseLanguage(name);
  }

  theme(event) {
    chooseTheme(event.target.value);
    if (this.state.me) remember({ theme: event.target.value });
  }

  async login(event) {
    const form = event.target;
    const body = { name: form.elements.name.value, password: form.elements.password.value };
    try {
      adopt((await api.post("/login", body)).settings);
      location.reload();
    } catch (error) {
      const known = { 401: "login.wrong", 429: "login.later" }[error.status];
      this.set({ wrong: known ? t(known) : saidPlainly(error.message) });
      form.elements.password.select();
    }
  }

  async logout(event, button) {
    if (await this.act(() => api.post("/logout"), button)) location.assign("/");
  }
}

customElements.define("fg-shell", Shell);
