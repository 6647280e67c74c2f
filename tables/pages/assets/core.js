// What all pages share: data files, elements that hold text and never markup, and the view in the address.
"use strict";

const Report = (() => {
  const waiting = new Map(); // name of a data file -> {promise, resolve, reject}
  const pages = {};

  // Data files are scripts that call receive or unpack: a page that was opened from disk may load nothing else.
  function load(name) {
    let entry = waiting.get(name);
    if (!entry) {
      entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      waiting.set(name, entry);
      script(`data/${name}.js`).catch((error) => {
        waiting.delete(name);
        entry.reject(error);
      });
    }
    return entry.promise;
  }

  function script(source) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = source;
      element.onload = () => { element.remove(); resolve(); };
      element.onerror = () => { element.remove(); reject(new Error(`${source} cannot be loaded`)); };
      document.head.append(element);
    });
  }

  function receive(name, value) {
    waiting.get(name)?.resolve(value);
  }

  async function unpack(name, base64) {
    try {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      receive(name, await new Response(stream).json());
    } catch (error) { // of a browser that cannot, or a file that was cut off
      waiting.get(name)?.reject(new Error(`data/${name}.js cannot be read: ${error.message}`));
    }
  }

  // An element; strings among the children become text.
  function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
      else if (name === "value" || name === "checked") element[name] = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // Text of a model, a user or a file: apart from what stands around it, whatever directions it asks for.
  const foreign = (text, kind = "") => h("bdi", { class: `text ${kind}`.trim(), dir: "ltr" }, text);

  // The view is the address behind the #: a page and its settings.
  function view() {
    const [page, query] = location.hash.replace(/^#\/?/, "").split("?");
    return { page: pages[page] ? page : "overview", settings: new URLSearchParams(query ?? "") };
  }

  function address(page, settings) {
    const kept = Object.entries(settings).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    return `#/${page}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
  }

  function go(page, settings, instead = false) {
    const to = address(page, settings);
    if (to === location.hash) return;
    if (instead) history.replaceState(null, "", to);
    else location.hash = to;
    if (instead && pages[page].moved) pages[page].moved();
  }

  let shown = null;
  async function show() {
    const { page, settings } = view();
    if (shown && shown !== page) pages[shown].leave?.();
    const changed = shown !== page;
    shown = page;
    for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== page;
    for (const link of document.querySelectorAll("nav a")) {
      const here = link.hash.slice(2).split("?")[0];
      if (here === page || (here === "items" && page === "item")) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    say("");
    if (changed) window.scrollTo(0, 0);
    try {
      await pages[page].show(settings, document.getElementById(page));
    } catch (error) {
      say(error.message);
    }
    document.body.dataset.ready = location.hash || "#";
  }

  const say = (text) => { document.getElementById("status").textContent = text; };

  // Every item's numbers, by suite and series: groups.get("0 3").at(item) is a row.
  let read = null;
  async function rows() {
    const book = await load("book");
    if (!read) {
      const { groups } = await load("rows");
      read = new Map();
      for (const group of groups) {
        const place = new Map(group.item.map((item, index) => [item, index]));
        read.set(`${group.suite} ${group.series}`, { ...group, place });
      }
    }
    return { book, groups: read };
  }

  const row = (groups, suite, series, item) => {
    const group = groups.get(`${suite} ${series}`);
    const index = group?.place.get(item);
    return index === undefined ? null : rowAt(group, index);
  };
  const rowAt = (group, index) => ({
    suite: group.suite, series: group.series, item: group.item[index], right: group.right[index],
    seconds: group.seconds[index], disturbed: group.disturbed[index], forwards: group.forwards[index], tokens: group.tokens[index],
    proposed: group.proposed[index], accepted: group.accepted[index], same: group.same[index],
    draws: group.draw_seconds?.[index] ?? null, flop: group.flop?.[index] ?? null,
    peak: group.peak_bytes?.[index] ?? null, joules: group.joules?.[index] ?? null,
  });

  const file = (book, kind, suite, item) => load(`${kind}/${suite}-${Math.floor(item / book.itemsAFile)}`);
  const VERDICTS = { 1: "right", 0: "wrong", "-": "not scored" };
  const verdict = (letter) => h("span", { class: `verdict ${VERDICTS[letter].replace(" ", "-")}` },
    `${{ 1: "✓", 0: "✗", "-": "?" }[letter]} ${VERDICTS[letter]}`);

  // Plotly is as large as all the rest together: it is loaded when a figure is to be drawn.
  let drawing = null;
  const plotly = () => (drawing ??= script("assets/plotly.min.js").then(() => window.Plotly));
  async function plot(element, figure) {
    const Plotly = await plotly();
    const style = getComputedStyle(document.body);
    const [ink, paper, line] = ["--ink", "--paper", "--line"].map((name) => style.getPropertyValue(name));
    // The legend has its place below the axes, in as many columns of its longest entry as Plotly fits into the axes'
    // width, however many rows it takes.
    const margin = figure.layout.margin;
    const entry = 7 * Math.max(...figure.data.map((each) => each.name?.length ?? 0)); // pixels
    const columns = Math.max(1, Math.floor((element.clientWidth - margin.l - margin.r) / (entry + 50)));
    const rows = 20 * Math.ceil(figure.data.length / columns) + 12;
    const below = 60 + rows;
    element.style.height = `${340 + below}px`;
    const place = { orientation: "h", x: 0, y: 0, xref: "container", yref: "container", xanchor: "left", yanchor: "bottom" };
    const legend = { ...place, entrywidth: entry, maxheight: rows };
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
    const layout = {
      ...figure.layout, template: null, font: { color: ink, size: 13 }, paper_bgcolor: paper, plot_bgcolor: paper, legend, height: 340 + below,
      margin: { ...margin, b: below },
      xaxis: { ...figure.layout.xaxis, ...axis }, yaxis: { ...figure.layout.yaxis, ...axis }, autosize: true,
    };
    await Plotly.react(element, figure.data, layout, { responsive: true, displaylogo: false });
    element.removeAllListeners?.("plotly_click");
    element.on("plotly_click", (event) => {
      const link = event.points[0]?.customdata;
      if (link) location.hash = Array.isArray(link) ? link[0] : link;
    });
    element.dataset.drawn = "yes";
  }

  return { load, receive, unpack, h, foreign, view, address, go, show, say, rows, row, rowAt, file, verdict, plot, pages };
})();
