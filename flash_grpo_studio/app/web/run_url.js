// The tabs of the Run page, and which one its address asks for.

import { asked } from "./page_url.js";

export const TABS = ["overview", "samples", "rewards", "training", "log", "config", "files"];

export function tab() {
  const wanted = asked("tab", TABS[0]);
  return TABS.includes(wanted) ? wanted : TABS[0];
}
