// The overview: the table is in the page already; here it learns to sort, and the figures are drawn.
"use strict";

Report.pages.overview = (() => {
  const { h, load, plot } = Report;

  function sortBy(column) {
    const table = document.getElementById("table");
    const [body] = table.tBodies;
    const button = table.querySelector(`button[data-column="${column}"]`);
    const head = button.closest("th");
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.children[column].dataset.value;
    const compare = column === 0
      ? (a, b) => value(b).localeCompare(value(a))
      : (a, b) => Number(value(b)) - Number(value(a));
    const rows = [...body.rows];
    const known = rows.filter((row) => value(row) !== ""); // what has no number stays last
    known.sort(compare);
    if (!down) known.reverse();
    body.append(...known, ...rows.filter((row) => value(row) === ""));
  }

  async function draw(place) {
    const figures = await load("figures");
    for (const [name, { title, choices }] of figures) {
      const names = Object.keys(choices);
      const canvas = h("div", { class: "plot", id: `plot-${name}`, role: "img", "aria-label": title });
      const choose = h("select", { "aria-label": `${title}: which`, onchange: () => plot(canvas, choices[choose.value]) },
        ...names.map((each) => h("option", {}, each)));
      place.append(h("figure", {}, h("figcaption", {}, h("h2", {}, title), names.length > 1 ? choose : null), canvas));
      canvas.redraw = () => plot(canvas, choices[choose.value]);
    }
    // All of them have their places before the first is drawn into its own.
    for (const canvas of place.querySelectorAll(".plot")) await canvas.redraw();
  }

  let begun = false;
  return {
    show() {
      if (begun) return;
      begun = true;
      for (const button of document.querySelectorAll("#table button")) {
        button.addEventListener("click", () => sortBy(Number(button.dataset.column)));
      }
      // The table comes first: it can be used while plotly is still on its way.
      setTimeout(() => draw(document.getElementById("figures")).catch((error) => Report.say(error.message)), 50);
    },
    redraw() {
      for (const canvas of document.querySelectorAll(".plot")) canvas.redraw?.();
    },
  };
})();
