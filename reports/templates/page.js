(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const themes = read("themes");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const family = getComputedStyle(document.body).fontFamily;
  let printing = false;

  // "@blue/0.2" under a colour key becomes the theme's colour at that opacity; any other text is left alone.
  function resolve(token, theme) {
    const match = /^@([a-z]+)(?:\/([\d.]+))?$/.exec(token);
    const base = match && theme[match[1]];
    if (!base) return token;
    if (match[2] === undefined) return base;
    const part = (at) => parseInt(base.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${match[2]})`;
  }

  function paint(value, theme, key) {
    if (typeof value === "string") return /color$/.test(key) ? resolve(value, theme) : value;
    if (Array.isArray(value)) return value.map((item) => paint(item, theme, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, paint(item, theme, name)]));
  }

  function layoutFor(figure, theme, width) {
    const layout = paint(figure.layout, theme, "");
    layout.font.family = family;
    layout.height = figure.height;
    if (width < 440) {
      layout.font.size = 12;
      layout.margin = { ...layout.margin, l: 48, r: 8 };
      layout.height = figure.height + 40;
      Object.assign(layout.legend, { x: -0.14, entrywidth: 0.5, entrywidthmode: "fraction", font: { size: 11 } });
    }
    if (printing) layout.width = width;
    return layout;
  }

  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };

  function draw(element) {
    const width = printing ? 660 : element.clientWidth;
    if (!width) return;
    const figure = figures[element.dataset.figure];
    const theme = themes[dark.matches && !printing ? "dark" : "light"];
    const layout = layoutFor(figure, theme, width);
    element.style.height = `${layout.height}px`;
    const data = paint(figure.data, theme, "");
    if (width < 440) data.forEach((trace) => delete trace.legendgroup); // groups would stack into one long column
    Plotly.react(element, data, layout, config);
  }

  const plots = Array.from(document.querySelectorAll(".plot"));
  const drawAll = () => plots.forEach(draw);
  drawAll();
  dark.addEventListener("change", drawAll);
  document.querySelectorAll("details.more").forEach((details) =>
    details.addEventListener("toggle", () => details.querySelectorAll(".plot").forEach(draw)));
  addEventListener("beforeprint", () => { printing = true; drawAll(); });
  addEventListener("afterprint", () => { printing = false; drawAll(); });

  document.querySelectorAll("button[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    getSelection().selectAllChildren(source); // stays selected where the browser refuses the clipboard to a local file
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";
    }
  }));

  document.querySelectorAll("button[data-record]").forEach((button) => button.addEventListener("click", () => {
    const text = document.getElementById(button.dataset.record).textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = button.dataset.name;
    link.click();
    URL.revokeObjectURL(link.href);
  }));
})();
