// Words of the pages in the user's language. A missing key shows itself as the key and is reported once.

const LANGUAGES = { en: "English", zh: "简体中文" };
const STORE = "flash-grpo-language";
let words = {};
let sentences = null;
let language = "en";
const missing = new Set();

export { LANGUAGES };

export function currentLanguage() {
  return language;
}

/** Load the words; call once before anything is shown. */
export async function loadTexts() {
  // The document's head has chosen, by what is kept here or else the browser's own language.
  language = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
  const files = [`./texts/${language}.json`, ...(language === "zh" ? ["./server_zh.json"] : [])];
  const answers = await Promise.all(files.map((file) => fetch(new URL(file, import.meta.url))));
  [words, sentences = null] = await Promise.all(answers.map((answer) => answer.json()));
}

/** The server's sentences by their English templates; null where the pages are in English. */
export function serverSentences() {
  return sentences;
}

/** Remember a language for the next page. */
export function keepLanguage(name) {
  if (name in LANGUAGES) localStorage.setItem(STORE, name);
}

export function chooseLanguage(name) {
  keepLanguage(name);
  location.reload();
}

/** The words of a key, with {name} replaced by values. Words with a `|` are "one | many", chosen by values.count. */
export function t(key, values = {}) {
  let text = words[key];
  if (text === undefined) {
    if (!missing.has(key)) {
      missing.add(key);
      console.error(`no words for ${key} in ${language}`);
    }
    return key;
  }
  if (text.includes(" | ")) {
    const [one, many] = text.split(" | ");
    text = values.count === 1 ? one : many;
  }
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
