// What a reader points at, in words: bins of a density, thresholds of a curve, texts that match.
// The page says the same without this script; it reads only what the page holds.
"use strict";

const NEAR = 3; // inputs shown beside a bin

function made(name, kind, words = "") {
  const element = document.createElement(name);
  element.className = kind;
  element.textContent = words;
  return element;
}

// The inputs of the bin that holds z, or those nearest to it.
function inputsAt(inputs, z) {
  const ofBin = inputs.filter(one => +one.dataset.low <= z && z < +one.dataset.high);
  const far = one => Math.abs(+one.dataset.z - z);
  return [...(ofBin.length ? ofBin : inputs)].sort((a, b) => far(a) - far(b)).slice(0, NEAR);
}

// Let a figure say what is at the place that is pointed at, or chosen by its slider.
function explore(figure, inputs, moved) {
  const marks = JSON.parse(figure.dataset.marks); // [x, y, z, words], from the lower left corner
  const axis = +figure.dataset.axis;
  const svg = figure.querySelector("svg"), box = svg.viewBox.baseVal;
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 4);
  const slider = made("input", "slider screen");
  Object.assign(slider, {type: "range", min: 0, max: marks.length - 1, value: 0});
  slider.setAttribute("aria-label", figure.dataset.slider);
  const said = made("div", "said screen", `${figure.dataset.slider}: point at the picture, or move the slider`);
  said.setAttribute("aria-live", "polite");
  figure.append(slider, said);

  function mark(i) {
    svg.append(ring);
    ring.setAttribute("cx", box.x + marks[i][0] * box.width);
    ring.setAttribute("cy", box.y + (1 - marks[i][1]) * box.height);
    slider.value = i;
  }
  function show(i) {
    const z = marks[i][2];
    mark(i);
    figure.dataset.z = z; // read by explore.js
    said.replaceChildren(made("p", "", marks[i][3]));
    for (const input of inputsAt(inputs, z)) {
      const line = made("div", "near");
      line.append(made("span", "soft", `z = ${input.dataset.z} `), input.firstElementChild.cloneNode(true));
      said.append(line);
    }
    moved(figure, z);
  }
  function nearest(value, at) {
    const away = marks.map(one => Math.abs(one[at] - value));
    return away.indexOf(Math.min(...away));
  }
  function point(event) {
    const area = svg.getBoundingClientRect();
    const x = (event.clientX - area.left) / area.width, y = 1 - (event.clientY - area.top) / area.height;
    show(nearest(axis ? y : x, axis));
  }
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, point);
  slider.addEventListener("input", () => show(+slider.value));
  return {figure, at: z => mark(nearest(z, 2))};
}

// Show only the inputs whose text holds what is typed.
function search(list, inputs) {
  const field = made("input", "search"), found = made("output", "soft"), label = made("label", "screen", "Search in the texts: ");
  field.type = "search";
  label.append(field, " ", found);
  list.prepend(label);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const one of inputs) one.hidden = !one.firstElementChild.textContent.toLowerCase().includes(wanted);
    for (const bin of list.querySelectorAll(".bin")) bin.hidden = !bin.querySelector("li:not([hidden])");
    found.textContent = wanted ? `${inputs.filter(one => !one.hidden).length} of ${inputs.length}` : "";
  });
}

for (const section of document.querySelectorAll("section.run")) {
  const list = section.querySelector(".shown"), inputs = [...list.querySelectorAll("li")];
  const moved = (figure, z) => all.forEach(one => one.figure === figure || one.at(z));
  const all = [...section.querySelectorAll("figure[data-marks]")].map(one => explore(one, inputs, moved));
  if (list.querySelector(".text")) search(list, inputs);
}
