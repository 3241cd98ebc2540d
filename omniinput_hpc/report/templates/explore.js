// The explorer's part of the page: asks its server for recorded inputs. Follows page.js.
{
  const section = document.querySelector("section.run");
  const panel = made("div", "all screen"), said = made("p", "soft", "Click a bin of the density to see its inputs.");
  const list = made("ul", "inputs"), more = made("button", "", "More");
  said.setAttribute("aria-live", "polite");
  let latest = 0; // an answer to an earlier question is not shown

  async function ask(what, values, added = false) {
    const number = ++latest;
    if (!added) said.textContent = "Reading ...";
    more.hidden = true;
    list.ariaBusy = true;
    let found;
    try {
      found = await (await fetch(`api/${what}?${new URLSearchParams(values)}`)).json();
    } catch {
      found = {error: "No answer: is omniinput explore still running?"};
    }
    if (number !== latest) return;
    if (!added) list.replaceChildren();
    for (const input of found.inputs ?? []) list.append(shown(input, found.kind));
    said.textContent = found.error ?? `${found.said}; inputs shown: ${list.children.length}`;
    const go = () => ask(what, {...values, start: found.next}, true);
    const ended = (found.next ?? null) === null;
    if (!ended && !found.inputs.length) return go(); // a search that has found nothing so far
    more.hidden = ended;
    more.onclick = go;
    list.ariaBusy = false;
  }
  function shown(input, kind) {
    const item = made("li", ""), inside = kind === "image" ? made("img", "") : made("div", "text", input.shown);
    if (kind === "image") Object.assign(inside, {src: input.shown, alt: `input with output ${input.z}`});
    else inside.dir = "auto";
    item.append(inside, made("div", "soft", [`z = ${input.z}`, input.note].filter(Boolean).join(", ")));
    return item;
  }
  function button(words, clicked) {
    const one = made("button", "", words);
    one.onclick = clicked;
    return one;
  }

  const controls = made("p", "");
  if (section.querySelector(".shown .text")) {
    const field = made("input", "search");
    Object.assign(field, {type: "search", placeholder: "words in the text", ariaLabel: "Search in all recorded texts"});
    const search = () => ask("search", {words: field.value});
    field.addEventListener("keydown", event => event.key === "Enter" && search());
    controls.append(field, " ", button("Search", search), " ");
  }
  for (const end of ["lowest", "highest"])
    controls.append(button(`${end} z`, () => ask("extremes", {end: end === "lowest" ? "low" : "high"})), " ");
  more.hidden = true;
  panel.append(made("h3", "", "All recorded inputs"), controls, said, list, more);
  section.querySelector("figure").after(panel);

  for (const figure of section.querySelectorAll("figure[data-slider='Output z']"))
    for (const [element, kind] of [[figure.querySelector("svg"), "click"], [figure.querySelector(".slider"), "change"]])
      element.addEventListener(kind, () => {
        ask("bin", {z: figure.dataset.z});
        panel.scrollIntoView({block: "nearest"});
      });
}
