"use strict";
(() => {
  const root = document.documentElement;
  const { themes, charts } = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const report = (window.dsv4bench = { views: {}, drawn: "", failed: [] });
  let queue = Promise.resolve();

  const mode = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  async function draw(theme) {
    for (const [id, spec] of Object.entries(charts)) {
      const place = document.getElementById("chart-" + id);
      try {
        const made = await vegaEmbed(place, spec, {
          mode: "vega-lite",
          renderer: "svg",
          actions: false,
          ast: true, // expressions are interpreted: the page allows no eval
          defaultStyle: false,
          config: themes[theme],
          tooltip: { theme, maxDepth: 1 },
        });
        report.views[id] = made.view;
      } catch (error) {
        report.failed.push(id);
        place.textContent = "This chart could not be drawn; its table has the numbers. " + error.message;
        console.error(id, error);
      }
    }
    report.drawn = theme;
  }

  function show() {
    const theme = mode();
    button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
    queue = queue.then(() => {
      for (const view of Object.values(report.views)) view.finalize();
      return draw(theme);
    });
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = mode() === "dark" ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", () => root.dataset.theme || show());
  show();
})();
