"use strict";
// The page's behaviour: figures when they come near the screen, tables in pages, theme, and news while a study runs.
// Text from the data goes into the document by textContent alone.
(function () {
  const ROWS = 25;
  const root = document.documentElement;
  let numbers = read("etastar-data");
  let drawings = read("etastar-drawings");
  let plotly = null; // the promise of the library
  let watcher = null;
  const hidden = {}; // section → strategies switched off

  function read(id) { return JSON.parse(document.getElementById(id).textContent); }
  function make(tag, text, attributes) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const name in attributes || {}) node.setAttribute(name, attributes[name]);
    return node;
  }
  function sectionOf(key) { return numbers.sections.find((one) => one.key === key); }

  // ---- numbers in words, as the Python side spells them
  function scale(value) {
    for (const [suffix, unit] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (Math.abs(value) >= unit * 0.99995) return trim(value / unit, 4) + suffix;
    }
    return trim(value, 4);
  }
  function trim(value, digits) {
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    if (size < -5 || size >= digits + 2) {
      const [mantissa, power] = value.toExponential(digits - 1).split("e");
      return String(Number(mantissa)) + "e" + power.replace(/^([+-])(\d)$/, "$10$2");
    }
    return String(Number(value.toPrecision(digits)));
  }
  function spell(value, kind) {
    if (value === null || value === undefined || value === "") return "–";
    if (kind === "text" || typeof value === "string") return String(value);
    switch (kind) {
      case "int": return Math.round(value).toLocaleString("en-US");
      case "lr": return trim(value, 3);
      case "log2": return value.toFixed(2);
      case "scale": return scale(value);
      case "loss": return value.toFixed(4);
      case "percent": return (100 * value).toFixed(Math.abs(value) >= 10 ? 0 : Math.abs(value) >= 1 ? 1 : 2) + " %";
      default: return trim(value, 4);
    }
  }

  // ---- tables: sorted and filtered in memory, a page of rows in the document
  function grid(place, table, what) {
    const kinds = table.columns.map((column) => column.kind);
    const state = { sort: -1, down: false, page: 0, rows: table.rows, words: null };
    const input = make("input", null, { type: "search", placeholder: "lr 2^-12, diverged, run name …", autocomplete: "off", spellcheck: "false" });
    const label = make("label", "Filter "), count = make("span", "", { class: "count", role: "status" });
    const back = make("button", "Previous", { type: "button", class: "quiet" }), next = make("button", "Next", { type: "button", class: "quiet" });
    const page = make("span", ""), toolbar = make("div", null, { class: "toolbar" }), pager = make("div", null, { class: "pager" });
    label.append(input);
    pager.append(back, page, next);
    toolbar.append(label, count, pager);
    const scroll = make("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption });
    const node = make("table"), head = make("tr"), body = make("tbody");
    node.append(make("caption", table.caption + (table.left_out ? " (the first " + table.rows.length + ")" : "")));
    const thead = make("thead");
    thead.append(head);
    node.append(thead, body);
    scroll.append(node);
    place.replaceChildren(toolbar, scroll);
    table.columns.forEach((column, k) => {
      const th = make("th", null, { scope: "col", "aria-sort": "none" });
      if (column.kind !== "text") th.className = "num";
      if (column.title) th.title = column.title;
      const button = make("button", column.label || column.name, { type: "button" });
      button.addEventListener("click", () => {
        state.down = state.sort === k ? !state.down : false;
        state.sort = k;
        state.page = 0;
        for (const other of head.children) other.setAttribute("aria-sort", "none");
        th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        order();
        draw();
      });
      th.append(button);
      head.append(th);
    });
    function words() {
      if (!state.words) state.words = table.rows.map((row) => row.map((value, k) => spell(value, kinds[k])).join(" \u0000 ").toLowerCase());
      return state.words;
    }
    function choose() {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const all = wanted.length ? words() : null;
      state.rows = wanted.length ? table.rows.filter((row, k) => wanted.every((word) => all[k].includes(word))) : table.rows;
      state.page = 0;
      order();
      draw();
    }
    function order() {
      if (state.sort < 0) return;
      const k = state.sort, sign = state.down ? -1 : 1;
      state.rows = state.rows.slice().sort((a, b) => {
        const x = a[k], y = b[k];
        if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1; // what is unknown stays last
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
    }
    const status = table.columns.findIndex((column) => column.name === "status");
    function draw() {
      const pages = Math.max(1, Math.ceil(state.rows.length / ROWS)), first = state.page * ROWS;
      const part = document.createDocumentFragment();
      for (const row of state.rows.slice(first, first + ROWS)) {
        const tr = make("tr");
        if (status >= 0 && (row[status] === "diverged" || row[status] === "crashed")) tr.className = row[status];
        row.forEach((value, k) => {
          const cell = make(k === 0 && kinds[0] === "text" ? "th" : "td");
          if (cell.tagName === "TH") cell.scope = "row";
          if (kinds[k] !== "text") cell.className = "num";
          const said = spell(value, kinds[k]);
          cell.append(make("bdi", said));
          if (said.length > 28) cell.title = said;
          tr.append(cell);
        });
        part.append(tr);
      }
      body.replaceChildren(part);
      count.textContent = state.rows.length.toLocaleString("en-US") + " of " + table.rows.length.toLocaleString("en-US") + " " + what;
      page.textContent = "page " + (state.page + 1) + " of " + pages;
      back.disabled = state.page === 0;
      next.disabled = state.page >= pages - 1;
      pager.hidden = pages === 1;
    }
    let waiting = 0;
    input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(choose, 80); });
    back.addEventListener("click", () => { state.page -= 1; draw(); });
    next.addEventListener("click", () => { state.page += 1; draw(); });
    toolbar.hidden = table.rows.length <= 8;
    draw();
  }

  function tables() {
    for (const place of document.querySelectorAll(".grid[data-table]")) {
      const own = sectionOf(place.closest(".study").dataset.key), name = place.dataset.table;
      near(place, () => grid(place, own[name], name));
    }
    for (const details of document.querySelectorAll('details[data-table="figure"]')) {
      details.addEventListener("toggle", () => {
        const place = details.querySelector(".grid"), figure = details.closest(".plot");
        if (details.open && !place.firstChild) grid(place, sectionOf(figure.dataset.section).figures[figure.dataset.plot], "rows");
      });
    }
  }

  // ---- figures
  function library() {
    if (!plotly) {
      plotly = new Promise((resolve) => {
        const script = document.createElement("script");
        script.textContent = document.getElementById("plotly-source").textContent;
        document.body.append(script); // runs at once: its hash is in the page's policy
        resolve(window.Plotly);
      });
    }
    return plotly;
  }
  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name.slice(4, -1)).trim();
  }
  function faded(hex, share) {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
    return "rgba(" + [r, g, b, share].join(",") + ")";
  }
  function resolved(value) {
    if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map(resolved);
    if (value && typeof value === "object") {
      const out = {};
      for (const key in value) out[key] = resolved(value[key]);
      if (out.meta && out.meta.fade) out.fillcolor = faded(out.fillcolor, out.meta.fade);
      return out;
    }
    return value;
  }
  function drawn(figure) {
    const key = figure.dataset.section, views = drawings[key][figure.dataset.plot];
    const choice = figure.querySelector("[data-choose]"), view = views[choice ? Number(choice.value) : 0];
    const ink = colour("var(--ink)"), muted = colour("var(--muted)"), lines = colour("var(--grid)"), card = colour("var(--card)");
    const narrow = figure.clientWidth < 480;
    const traces = resolved(view.data), off = hidden[key] || new Set();
    for (const trace of traces) if (trace.meta && trace.meta.strategy) trace.visible = !off.has(trace.meta.strategy);
    const named = traces.filter((trace) => trace.name && trace.showlegend !== false).length;
    const legend = 21 * Math.max(0, Math.ceil(named / (narrow ? 2 : 5)) - 1); // its rows must not eat the figure
    const frame = { gridcolor: lines, linecolor: lines, tickfont: { color: muted, size: 12 }, automargin: true };
    const layout = resolved(view.layout);
    for (const axis of ["xaxis", "yaxis"]) {
      layout[axis] = Object.assign({}, frame, layout[axis]);
      layout[axis].title = Object.assign({ font: { color: muted, size: 13 }, standoff: 8 }, layout[axis].title);
    }
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: narrow ? 12 : 13 },
      margin: { l: narrow ? 44 : 56, r: 12, t: 12, b: 44 }, autosize: true, height: (layout.height || (narrow ? 340 : 400)) + legend,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: narrow ? 10.5 : 12 }, bgcolor: "rgba(0,0,0,0)" },
      hovermode: "closest", dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: card, bordercolor: lines, font: { color: ink, size: 12 }, align: "left" },
    });
    const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
    const canvas = figure.querySelector(".canvas");
    return library().then((Plotly) => {
      if (!figure.dataset.drawn) canvas.replaceChildren();
      figure.dataset.drawn = "yes";
      return Plotly.react(canvas, traces, layout, config).then(() => { if (!root.dataset.drawn) root.dataset.drawn = String(Math.round(performance.now())); });
    });
  }
  function figures() {
    for (const figure of document.querySelectorAll(".plot[data-plot]")) {
      if (!figure.querySelector(".canvas")) continue;
      const choice = figure.querySelector("[data-choose]");
      if (choice) choice.addEventListener("change", () => drawn(figure));
      near(figure, () => drawn(figure));
    }
    for (const box of document.querySelectorAll("[data-strategy]")) {
      const key = box.closest(".study").dataset.key;
      const off = hidden[key] || (hidden[key] = new Set());
      box.checked = !off.has(box.dataset.strategy);
      box.addEventListener("change", () => {
        if (box.checked) off.delete(box.dataset.strategy); else off.add(box.dataset.strategy);
        for (const figure of document.querySelectorAll('.plot[data-drawn][data-section="' + key + '"]')) drawn(figure);
      });
    }
  }
  function redraw() { for (const figure of document.querySelectorAll(".plot[data-drawn]")) drawn(figure); }

  // what is far from the screen waits until it comes near
  function near(node, act) {
    if (!watcher) {
      watcher = new IntersectionObserver((entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          watcher.unobserve(entry.target);
          const wanted = entry.target.whenNear;
          entry.target.whenNear = null;
          if (wanted) wanted();
        }
      }, { rootMargin: "600px 0px" });
    }
    node.whenNear = act;
    watcher.observe(node);
  }

  // ---- the bar at the top
  function parts() {
    const list = make("ul");
    const many = numbers.sections.length > 1;
    const add = (href, text) => { const item = make("li"); item.append(make("a", text, { href: href })); list.append(item); };
    add("#answer", "Answer");
    if (many) for (const one of numbers.sections) add("#" + one.key, one.study.slice(0, 40));
    else for (const part of document.querySelectorAll("[data-part]")) add("#" + part.id, part.dataset.part);
    document.getElementById("parts").replaceChildren(list);
  }
  function theme() {
    const button = document.getElementById("theme"), system = window.matchMedia("(prefers-color-scheme: dark)");
    const show = () => {
      const dark = root.dataset.theme === "dark";
      button.setAttribute("aria-pressed", String(dark));
      redraw();
    };
    button.addEventListener("click", () => {
      root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      root.dataset.chosen = "yes";
      try { window.localStorage.setItem("etastar-theme", root.dataset.theme); } catch (error) { /* a page without storage forgets */ }
      show();
    });
    system.addEventListener("change", () => {
      if (root.dataset.chosen) return;
      root.dataset.theme = system.matches ? "dark" : "light";
      show();
    });
    let before = null;
    window.addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; redraw(); });
    window.addEventListener("afterprint", () => { if (before) root.dataset.theme = before; show(); });
    show();
  }
  function download() {
    document.getElementById("download").addEventListener("click", () => {
      const blob = new Blob([JSON.stringify(numbers, null, 1)], { type: "application/json" });
      const link = make("a", null, { href: URL.createObjectURL(blob), download: "etastar-report.json" });
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }
  function copying() {
    for (const button of document.querySelectorAll("[data-copy]")) {
      const said = button.parentElement.querySelector(".said");
      button.addEventListener("click", () => {
        const done = (words) => { said.textContent = words; setTimeout(() => { said.textContent = ""; }, 2500); };
        if (!navigator.clipboard) { done("select the number to copy it"); return; }
        navigator.clipboard.writeText(button.dataset.copy).then(() => done("copied"), () => done("select the number to copy it"));
      });
    }
  }

  // ---- news, where the page was served by `etastar status --serve`
  function live() {
    const told = document.getElementById("live");
    let version = document.body.dataset.live;
    const ask = () => fetch("/status.json", { cache: "no-store" })
      .then((answer) => { if (!answer.ok) throw new Error(String(answer.status)); return answer.json(); })
      .then((news) => {
        told.classList.remove("lost");
        told.textContent = news.finished ? "all runs done" : news.words;
        const place = document.querySelector("[data-progress]");
        if (place && news.progress && place.dataset.shown !== news.progress) {
          place.innerHTML = news.progress; // the server's own template
          place.dataset.shown = news.progress;
        }
        if (news.version === version) return null;
        return fetch("/data.json", { cache: "no-store" }).then((answer) => answer.json()).then((fresh) => {
          version = fresh.version;
          replace(fresh);
        });
      })
      .catch(() => { told.classList.add("lost"); told.textContent = "the server does not answer"; })
      .finally(() => setTimeout(ask, 3000));
    setTimeout(ask, 1000);
  }
  function replace(fresh) {
    const top = window.scrollY, chosen = {}, open = [];
    for (const select of document.querySelectorAll("[data-choose]")) chosen[select.closest(".plot").id] = select.value;
    for (const box of document.querySelectorAll("[data-strategy]:not(:checked)")) (hidden[box.closest(".study").dataset.key] = hidden[box.closest(".study").dataset.key] || new Set()).add(box.dataset.strategy);
    for (const details of document.querySelectorAll(".plot details[open]")) open.push(details.closest(".plot").id);
    numbers = fresh.data;
    drawings = fresh.drawings;
    document.title = fresh.title;
    document.getElementById("main").innerHTML = fresh.main; // the server's own template; the policy lets no script in it run
    for (const id in chosen) {
      const select = document.getElementById(id) && document.getElementById(id).querySelector("[data-choose]");
      if (select && Number(chosen[id]) < select.options.length) select.value = chosen[id];
    }
    start();
    for (const id of open) { const figure = document.getElementById(id); if (figure && figure.querySelector("details")) figure.querySelector("details").open = true; }
    window.scrollTo(0, top);
  }

  function start() { parts(); tables(); copying(); figures(); }
  theme();
  download();
  // the first paint is the answer; figures follow it
  requestAnimationFrame(() => setTimeout(() => {
    start();
    if ("live" in document.body.dataset) live();
    root.dataset.ready = String(Math.round(performance.now())); // milliseconds until the page could be used
  }, 0));
})();
