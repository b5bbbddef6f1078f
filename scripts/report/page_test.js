"use strict";
// A browser's few parts that page.js uses, for node. report_test.py puts the data in and the page's scripts after it.
class Element {
  constructor() { this.children = []; this.style = {}; this.textContent = ""; this.className = ""; }
  appendChild(child) { this.children.push(child); return child; }
}
const elements = new Map();
globalThis.document = {
  documentElement: new Element(),
  createElement: () => new Element(),
  getElementById: (id) => {
    if (!elements.has(id)) elements.set(id, new Element());
    return elements.get(id);
  },
};
document.getElementById("data").textContent = /*DATA*/;
globalThis.getComputedStyle = () => ({ getPropertyValue: () => " #123456" });
globalThis.window = { matchMedia: () => ({ addEventListener: (event, redraw) => redraw() }) };

function finish() {
  const made = Chart.made.slice(-4);  // the first four were drawn for the other colours
  console.log(JSON.stringify({
    charts: made.map((chart) => chart.type),
    rows: made[0].data.labels.length,
    sets: made.map((chart) => chart.data.datasets.length),
  }));
}
