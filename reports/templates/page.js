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

  // The sliders: every change computes the step-time law anew (WhatIf) and redraws its figure.
  function setUpWhatIf(model) {
    const at = (name) => document.getElementById(`whatif-${name}`);
    const element = document.querySelector('[data-figure="whatif"]');
    const caption = element.closest("figure").querySelector("h3");
    const digits = (value) => (value >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3))));
    const seconds = (value) => (value >= 1 ? `${digits(value)} s` : value >= 1e-3 ? `${digits(1e3 * value)} ms` : `${digits(1e6 * value)} µs`);
    const say = (name, text) => { at(name).textContent = text; };
    const escape = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

    function line(rows, name, dash) {
      const text = rows.map((row) => `<b>${escape(name)} · K = ${row.block_size} (num_speculative_tokens ${row.block_size - 1})</b><br>`
        + `${digits(row.speedup)}× over plain decoding<br>τ = ${digits(row.tau)}<br>step ${seconds(row.step_s)}, ${row.bound}-bound`);
      return {
        type: "scatter", x: rows.map((row) => row.block_size), y: rows.map((row) => row.speedup), text, hoverinfo: "text",
        mode: "lines+markers", line: { color: "@blue", width: 2.5, dash }, marker: { size: 6, color: "@blue" },
      };
    }

    function update() {
      const chip = model.chips[Number(at("chip").value)], task = model.tasks[Number(at("task").value)];
      const blockSize = Number(at("k").value), alphaScale = Number(at("alpha").value);
      const batch = model.batches[Number(at("batch").value)], context = model.contexts[Number(at("context").value)];
      const { rows, best } = WhatIf.curve(model, chip, task, batch, context, alphaScale, model.widest);
      const row = rows[blockSize - 1], trained = task.trained_block_size;
      say("k-value", `K = ${blockSize} (num_speculative_tokens ${blockSize - 1})${blockSize > trained ? ", extrapolated" : ""}`);
      say("batch-value", digits(batch));
      say("context-value", `${context.toLocaleString("en-US")} tokens`);
      say("alpha-value", `× ${alphaScale.toFixed(2)}`);
      say("speedup", `${digits(row.speedup)}×`);
      say("best", best.block_size > 1 ? `K = ${best.block_size} (${best.block_size - 1}): ${digits(best.speedup)}×` : "plain decoding");
      say("tau", digits(row.tau));
      say("step", `${seconds(row.draft_s)} + ${seconds(row.verify_s)} + ${seconds(row.host_s)}, verify is ${row.bound}-bound`);
      say("tpot", seconds(row.tpot_s));
      say("rate", digits(batch / row.tpot_s));
      const gain = best.block_size > 1 ? `best at K = ${best.block_size} with ${digits(best.speedup)}×` : "plain decoding is fastest";
      caption.textContent = `${task.name} on ${chip.name}, batch ${batch}, context ${context.toLocaleString("en-US")} tokens: ${gain}`;
      element.setAttribute("aria-label", `Line chart of speedup against block size K. ${caption.textContent}`);
      const ring = { size: 16, symbol: "circle-open", color: "@orange", line: { width: 3, color: "@orange" } };
      figures.whatif.data = [
        line(rows.slice(trained - 1), task.name, "dot"),
        line(rows.slice(0, trained), task.name, "solid"),
        { ...line([row], task.name, "solid"), mode: "markers", marker: ring },
      ];
      draw(element);
    }

    const start = model.start;
    at("batch").max = model.batches.length - 1;
    at("context").max = model.contexts.length - 1;
    at("batch").value = model.batches.indexOf(start.batch);
    at("context").value = model.contexts.indexOf(start.context);
    at("k").value = Math.min(start.block_size, model.widest);
    document.querySelectorAll("#sliders input, #sliders select").forEach((input) => input.addEventListener("input", update));
    update();
  }

  if (document.getElementById("whatif-data")) setUpWhatIf(read("whatif-data"));

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
