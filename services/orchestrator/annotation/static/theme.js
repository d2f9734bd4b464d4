// Dark, light, or as the system has it: kept in this browser.

const KEY = "headrace.theme";
const THEMES = ["system", "light", "dark"];
const button = document.getElementById("theme");

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  button.textContent = { system: "Auto", light: "Light", dark: "Dark" }[theme];
  button.setAttribute("aria-label", `Colours: ${theme}; change them`);
}

export function begin() {
  const stored = localStorage.getItem(KEY);
  apply(THEMES.includes(stored) ? stored : "system");
  button.addEventListener("click", () => {
    const at = THEMES.indexOf(document.documentElement.dataset.theme);
    const theme = THEMES[(at + 1) % THEMES.length];
    localStorage.setItem(KEY, theme);
    apply(theme);
  });
}
