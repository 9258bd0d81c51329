// Lists the versions of the site, each as a link to the same page where it has it.
(() => {
  const place = document.currentScript.parentElement;
  const { version, page, root } = place.dataset;
  const { stable, pages } = window.siteVersions ?? { stable: version, pages: {} };
  const name = (each) => each + (each === stable ? " (stable)" : "");
  const details = document.createElement("details");
  const list = document.createElement("ul");
  details.append(Object.assign(document.createElement("summary"), { textContent: `Version ${name(version)}` }), list);
  for (const each of Object.keys(pages).filter((each) => each !== version)) {
    const href = `${root}${each}/${pages[each].includes(page) ? page : "index.html"}`;
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("a"), { href, textContent: name(each) }));
    list.append(item);
  }
  if (list.children.length) place.append(details);
})();
