"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { workers, single, shadow, verdict, timeline } = data;
const charts = [];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const number = (value, digits) =>
  value === null || value === undefined ? "?" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const power = (value) => (value === null || value === undefined ? "?" : value.toExponential(1));
const percent = (value, digits = 1) => number(value === null ? null : 100 * value, digits) + " %";
const workersName = workers.workers + " workers";

function element(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent.appendChild(made);
  return made;
}

function figure(value, label, good) {
  const box = element(document.getElementById("figures"), "div", undefined, "figure" + (good === undefined ? "" : good ? " good" : " bad"));
  element(box, "b", value);
  element(box, "span", label);
}

function showFigures() {
  document.getElementById("summary").textContent =
    `Fashion-MNIST, a convolutional network with batch norm: ${workersName} with batches of ${workers.batch_per_worker}, ` +
    `beside plain libtorch in one process with batches of ${single.batch_per_worker}. ${workers.losses.length} steps each, ${workers.threads} thread a worker.`;
  figure(percent(verdict.accuracy, 2), "test accuracy", verdict.accuracy >= data.accuracy_min);
  figure(number(verdict.final_loss, 4), "final loss");
  figure(number(workers.images_per_second, 0), "images a second, " + workersName);
  figure(number(single.images_per_second, 0), "images a second, one");
  figure(number(verdict.speed_up, 2) + " ×", "speed-up", verdict.speed_up >= data.speed_up_wanted);
  figure(percent(workers.hidden_share), "of the communication hidden");
  figure(power(verdict.curves.largest), "largest difference of the losses", verdict.curves.inside);
  figure(verdict.identical ? "yes" : "no", "replicas identical (" + verdict.fingerprint.slice(0, 12) + "…)", verdict.identical);
}

function showRuns() {
  const table = document.getElementById("runs");
  const rows = [
    ["", workersName, "one process", "shadow"],
    ["batch of a worker", ...[workers, single, shadow].map((r) => number(r.batch_per_worker, 0))],
    ["threads of a worker", ...[workers, single, shadow].map((r) => number(r.threads, 0))],
    ["steps", ...[workers, single, shadow].map((r) => number(r.losses.length, 0))],
    ["images a second", ...[workers, single, shadow].map((r) => number(r.images_per_second, 0))],
    ["median step, ms", ...[workers, single, shadow].map((r) => number(1000 * r.step_s_median, 1))],
    ["training and tests, s", ...[workers, single, shadow].map((r) => number(r.seconds, 1))],
    ["test accuracy", ...[workers, single, shadow].map((r) => percent(r.evaluations[r.evaluations.length - 1].accuracy, 2))],
    ["gradients, MiB", number(workers.gradient_bytes / 1048576, 2), "", ""],
    ["buckets", number(workers.buckets, 0), "", ""],
    ["communication, ms a step", number(1000 * workers.communication_s, 2), "", ""],
    ["of it exposed, ms a step", number(1000 * workers.exposed_s, 2), "", ""],
    ["parameters (SHA-256)", ...[workers, single, shadow].map((r) => r.fingerprints[0].slice(0, 12) + "…")],
  ];
  rows.forEach((cells, index) => {
    const row = element(table, "tr");
    cells.forEach((text, column) => element(row, index === 0 || column === 0 ? "th" : "td", text));
  });
}

function scale(title, more = {}) {
  return { title: { display: true, text: title, color: colour("faint") }, ticks: { color: colour("faint") }, grid: { color: colour("line") }, ...more };
}

function curve(label, values, name, more = {}) {
  return {
    label, data: values.map((y, index) => ({ x: index + 1, y })), borderColor: colour(name), backgroundColor: colour(name),
    borderWidth: 1.5, pointRadius: 0, pointHitRadius: 6, ...more,
  };
}

function draw(id, type, datasets, scales, plugins = {}, more = {}) {
  charts.push(new Chart(document.getElementById(id), {
    type, data: { datasets, ...(more.labels ? { labels: more.labels } : {}) },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
      interaction: { mode: "nearest", intersect: type === "bar" }, ...(more.options || {}),
      plugins: { legend: { labels: { color: colour("text"), boxWidth: 14 } }, ...plugins }, scales,
    },
  }));
}

function drawLoss() {
  const edge = (sign) => verdict.tolerance.map((t, i) => (t === null ? null : single.losses[i] + sign * t));
  const band = { borderWidth: 0, backgroundColor: colour("band"), pointHitRadius: 0 };
  draw("loss", "line", [
    curve(workersName, workers.losses, "workers"),
    curve("one process", single.losses, "single", { borderDash: [4, 3] }),
    curve("tolerance", edge(1), "band", { ...band, fill: "+1" }),
    curve("lower edge", edge(-1), "band", band),
  ], { x: scale("step", { type: "linear" }), y: scale("loss", { beginAtZero: true }) },
  { legend: { labels: { color: colour("text"), boxWidth: 14, filter: (item) => item.text !== "lower edge" } } });
}

function drawDifference() {
  const shadowDifference = shadow.losses.map((loss, i) => Math.abs(loss - single.losses[i]));
  // A logarithm knows no zero: equal losses are drawn at the smallest step of f32 near them.
  const shown = (values) => values.map((v) => (v === null ? null : Math.max(v, 1e-8)));
  draw("difference", "line", [
    curve("tolerance", shown(verdict.tolerance), "band", { borderColor: colour("faint"), borderWidth: 2 }),
    curve(workersName + " – one process", shown(verdict.curves.differences), "workers"),
    curve("shadow – one process", shown(shadowDifference), "single"),
  ], { x: scale("step", { type: "linear" }), y: scale("difference of the loss", { type: "logarithmic" }) });
  document.getElementById("tolerance_note").textContent =
    `Both do the same sums in another order, so f32 rounds differently, and training amplifies that. How much is measured by the ` +
    `shadow: the single process again with the images of every batch in reverse, which differs by rounding alone. Tolerance: ` +
    `${data.factor} times the shadow's largest difference so far (${data.lead} steps ahead), plus ${power(verdict.step_bound)} of the loss for the ` +
    `rounding of one step. Over ${verdict.curves.steps} steps the largest difference is ${power(verdict.curves.largest)}; the closest it comes to ` +
    `the tolerance is ${percent(verdict.curves.tightest_ratio, 0)} of it, at step ${verdict.curves.tightest_step + 1}.`;
}

function drawAccuracy() {
  const points = (record, label, name, more) => ({
    label, data: record.evaluations.map((e) => ({ x: e.step, y: 100 * e.accuracy })), borderColor: colour(name),
    backgroundColor: colour(name), pointRadius: 4, borderWidth: 1.5, ...more,
  });
  draw("accuracy", "line", [points(workers, workersName, "workers"), points(single, "one process", "single", { borderDash: [4, 3] })],
    { x: scale("step", { type: "linear", beginAtZero: true }), y: scale("right answers, %") });
}

// One dataset a kind of bar, one label a row; bars float from begin to end.
function drawTimeline() {
  const labels = timeline.map((row) => `rank ${row.rank} ${row.row}`);
  const kinds = ["forward", "backward", "wait", "optimiser"];
  const bars = (name, pick) => ({
    label: name, data: timeline.map(pick), backgroundColor: colour(name), grouped: false, barPercentage: 0.8, categoryPercentage: 0.95,
  });
  const sets = kinds.map((kind) => bars(kind, (row) => {
    const bar = row.bars.find((b) => b.name === kind);
    return bar ? [bar.begin_ms, bar.end_ms] : null;
  }));
  const bucket = (row) => row.bars.find((b) => b.name.startsWith("bucket"));
  sets.push({ ...bars("bucket", (row) => (bucket(row) ? [bucket(row).begin_ms, bucket(row).end_ms] : null)), minBarLength: 2 });
  sets[4].label = "bucket under way";
  const box = document.getElementById("timeline_box");
  box.style.height = Math.max(14, 5 + 1.6 * labels.length) + "rem";
  const tooltip = {
    callbacks: {
      label: (item) => {
        const [begin, end] = item.raw;
        const its = bucket(timeline[item.dataIndex]);
        const size = item.datasetIndex === 4 && its ? `, ${number(its.args.bytes / 1024, 0)} KiB` : "";
        return `${item.dataset.label}: ${number(begin, 2)} to ${number(end, 2)} ms (${number(end - begin, 2)} ms${size})`;
      },
    },
  };
  draw("timeline", "bar", sets, { x: scale("ms", { min: 0 }), y: scale("", { title: { display: false } }) },
    { tooltip }, { labels, options: { indexAxis: "y" } });
  document.getElementById("timeline_note").textContent =
    `The step of median duration among the last ones. Over all measured steps ${percent(workers.hidden_share)} of ` +
    `${number(1000 * workers.communication_s, 2)} ms of communication a step were hidden. trace.json beside this file holds the same ` +
    `timeline for Perfetto and chrome://tracing.`;
}

function drawAll() {
  while (charts.length) charts.pop().destroy();
  if (timeline.length) drawTimeline();
  drawLoss();
  drawDifference();
  drawAccuracy();
}

showFigures();
showRuns();
drawAll();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
