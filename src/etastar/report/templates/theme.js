// before the first paint: the side that was chosen last, else the system's
(function () {
  var root = document.documentElement, system = window.matchMedia("(prefers-color-scheme: dark)"), chosen = null;
  try { chosen = window.localStorage.getItem("etastar-theme"); } catch (error) { chosen = null; }
  if (chosen !== "dark" && chosen !== "light") chosen = null;
  root.dataset.theme = chosen || (system.matches ? "dark" : "light");
  if (chosen) root.dataset.chosen = "yes";
  root.classList.add("js");
})();
