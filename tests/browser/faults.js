// What a reader of a page would stumble over, as a list of texts; run in the page.
([MIN_TEXT, MIN_MARK]) => {
  const faults = [];
  const short = (text) => JSON.stringify(text.trim().slice(0, 40));

  const remember = (compute) => {
    const known = new Map();
    return (key) => known.get(key) ?? known.set(key, compute(key)).get(key);
  };

  // Colours, with what is behind them.
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = remember((colour) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  });
  const luminance = ([...rgb]) => rgb.slice(0, 3)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = remember((element) => {
    if (element === null) return rgba("#ffffff");
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] > 0.99 ? colour : behind(element.parentElement);
  });

  // Texts that are seen: their nodes, elements and the boxes of their lines.
  const clips = remember((element) => {
    if (element === document.body) return [-Infinity, Infinity];
    const [left, right] = clips(element.parentElement);
    if (getComputedStyle(element).overflowX === "visible") return [left, right];
    const box = element.getBoundingClientRect();
    return [Math.max(left, box.left), Math.min(right, box.right)];
  });
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, #vg-tooltip-element")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const [left, right] = clips(element);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.left < right - 1 && box.right > left + 1);
    if (boxes.length) texts.push({ node, element, boxes });
  }

  // No sideways scrolling of the page.
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) faults.push(`the page is ${root.scrollWidth} px wide in ${root.clientWidth} px`);

  // No text over another.
  const all = texts.flatMap(({ node, boxes }) => boxes.map((box) => ({ node, box }))).sort((a, b) => a.box.top - b.box.top);
  all.forEach(({ node, box }, at) => {
    for (let next = at + 1; next < all.length && all[next].box.top < box.bottom - 3; next += 1) {
      const other = all[next];
      const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const down = Math.min(box.bottom, other.box.bottom) - other.box.top;
      if (other.node !== node && across > 2 && down > 4) faults.push(`${short(node.data)} overlaps ${short(other.node.data)}`);
    }
  });

  // No word broken inside, but for code, whose words may be longer than a line.
  for (const { node, element } of texts) {
    if (getComputedStyle(element).overflowWrap === "anywhere" || element.closest("svg, code")) continue;
    for (const { 0: word, index } of node.data.matchAll(/[\p{L}\p{N}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top)));
      if (lines.size > 1) faults.push(`the word ${short(word)} is broken`);
    }
  }

  // Contrast of texts, and of what charts draw.
  for (const { node, element } of texts) {
    const style = getComputedStyle(element);
    const found = contrast(rgba(element.closest("svg") ? style.fill : style.color), behind(element));
    if (found < MIN_TEXT) faults.push(`${short(node.data)} has a contrast of ${found.toFixed(2)}`);
  }
  for (const mark of document.querySelectorAll(".chart :is(.role-mark, .role-legend-symbol) :is(path, line, rect)")) {
    const style = getComputedStyle(mark);
    if (mark.matches(".background") || mark.closest(".role-axis-grid") || !mark.checkVisibility()) continue;
    if (Number(style.opacity) < 0.3) continue;
    const paints = [style.fill, style.stroke].filter((paint) => paint.startsWith("rgb") && rgba(paint)[3] > 0);
    const found = Math.max(...paints.map((paint) => contrast(rgba(paint), behind(mark))));
    if (paints.length && found < MIN_MARK) faults.push(`a mark of ${paints[0]} has a contrast of ${found.toFixed(2)}`);
  }
  for (const line of document.querySelectorAll(".legend svg path")) {
    const found = contrast(rgba(getComputedStyle(line).stroke), behind(line));
    if (found < MIN_MARK) faults.push(`a line of the legend has a contrast of ${found.toFixed(2)}`);
  }

  // Every cell of a card has its label, every column and row its header.
  for (const cell of document.querySelectorAll(":is(.cards, .facts) tbody td")) {
    if (!cell.dataset.title) faults.push(`the cell ${short(cell.textContent)} has no label`);
    else if (getComputedStyle(cell).display !== "table-cell" && cell.checkVisibility()
      && !getComputedStyle(cell, "::before").content.includes(cell.dataset.title))
      faults.push(`the cell ${short(cell.textContent)} does not show its label`);
  }
  for (const head of document.querySelectorAll(":is(.cards, .facts) th"))
    if (!head.scope) faults.push(`the header ${short(head.textContent)} has no scope`);
  return [...new Set(faults)];
}
