// Begin: the theme, then the view that the address asks for.
"use strict";

Report.pages.card = { show() {} };

(() => {
  const key = "fef-dllm-report-theme";
  const kept = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const set = (theme) => { document.documentElement.dataset.theme = theme; };
  const asked = window.matchMedia("(prefers-color-scheme: dark)");
  set(kept() ?? (asked.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    set(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem(key, document.documentElement.dataset.theme); } catch { /* kept for this visit alone */ }
    for (const page of Object.values(Report.pages)) page.redraw?.();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the view
    document.getElementById("main").focus();
  });
  window.addEventListener("hashchange", Report.show);
  Report.show();
})();
